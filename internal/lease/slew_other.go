//go:build !linux && !darwin && !windows

package lease

import "time"

// Slewed returns false: on this system nothing tells by how much the monotonic clock of [time.Now] is slewed.
func Slewed() (time.Duration, bool) { return 0, false }
