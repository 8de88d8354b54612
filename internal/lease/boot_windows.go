package lease

import (
	"time"

	"golang.org/x/sys/windows"
)

// SinceBoot reads a clock that counts suspension and that nobody sets, and that all processes of the machine share. It
// returns false if the system has none or does not let this process read it.
func SinceBoot() (time.Duration, bool) {
	return windows.DurationSinceBoot(), true // it advances in steps of up to 16 ms, which the least margin of a lease covers
}
