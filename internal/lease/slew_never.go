//go:build darwin || windows

package lease

import "time"

// Slewed returns by how much the monotonic clock of [time.Now] has run ahead of a clock that is never slewed: by nothing, because this system slews only
// the wall clock.
func Slewed() (time.Duration, bool) { return 0, true }
