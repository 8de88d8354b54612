//go:build !linux && !darwin && !windows

package lease

import "time"

// SinceBoot reads a clock that counts suspension and that nobody sets, and that all processes of the machine share. It
// returns false if the system has none or does not let this process read it.
func SinceBoot() (time.Duration, bool) { return 0, false }
