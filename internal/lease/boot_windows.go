package lease

import (
	"time"

	"golang.org/x/sys/windows"
)

// SinceBoot reads a clock of the machine that counts suspension and that nobody sets. It returns false if the system has no
// such clock, or does not let this process read it.
func SinceBoot() (time.Duration, bool) {
	return windows.DurationSinceBoot(), true // in steps of up to 16 ms, which the least margin of a lease covers
}
