package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads a clock of the machine that counts suspension and that nobody sets. It returns false if the system has no
// such clock, or does not let this process read it.
func SinceBoot() (time.Duration, bool) {
	var t unix.Timespec
	// On macOS this clock goes on during sleep, unlike mach_absolute_time, which Go's runtime reads.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
