//go:build !linux && !darwin

package host

import "time"

// HasClock reports whether the system has a clock that all processes share and that nobody sets.
const HasClock = false

// Clock panics on this system.
func Clock() time.Duration { panic("host: this system has no clock that processes share") }
