//go:build !linux && !darwin

package history

import "time"

// Supported says whether the system has a clock that all processes share and that nobody sets.
const Supported = false

// Now is of no use on this system.
func Now() time.Duration { panic("history: no clock that processes share") }
