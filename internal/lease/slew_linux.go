package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// slewPrecision is how exactly Slewed must know the difference of two clocks, and slewReadings is how often it tries: the process may be suspended
	// between the readings.
	slewPrecision, slewReadings = 100 * time.Microsecond, 5
)

// Slewed returns by how much the monotonic clock of [time.Now] has run ahead of a clock that is never slewed, since some instant. Of two results, the
// difference says how much was gained by slewing in between. It returns false if the system has no such clock, or does not let this process read it.
func Slewed() (time.Duration, bool) {
	for range slewReadings {
		var before, raw, after unix.Timespec
		for _, r := range []struct {
			clock int32
			into  *unix.Timespec
		}{{unix.CLOCK_MONOTONIC, &before}, {unix.CLOCK_MONOTONIC_RAW, &raw}, {unix.CLOCK_MONOTONIC, &after}} {
			if err := unix.ClockGettime(r.clock, r.into); err != nil { // a seccomp filter may forbid the call
				return 0, false
			}
		}
		if after.Nano()-before.Nano() <= slewPrecision.Nanoseconds() {
			return time.Duration(after.Nano() - raw.Nano()), true
		}
	}
	return 0, false
}
