package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads a clock of the machine that counts suspension and that nobody sets. It returns false if the system has no
// such clock, or does not let this process read it.
func SinceBoot() (time.Duration, bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil { // a seccomp filter may forbid the call
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
