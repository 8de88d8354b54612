//go:build !linux && !darwin

package history

import "time"

// Supported reports whether the system has a clock that all processes share and that nobody sets.
const Supported = false

// Now panics on this system.
func Now() time.Duration { panic("history: this system has no clock that processes share") }
