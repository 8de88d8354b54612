//go:build !linux && !darwin

package supervise

import (
	"errors"
)

// Run refuses: here nothing ends a program with all that it started.
func (r *Config) Run() error {
	return errors.New("run needs process groups and signals, which this system does not have: use it on Linux or macOS")
}

// PassGate does nothing, as no program is started.
func PassGate([]string) {}

// Guard does nothing, as there is nothing to guard.
func Guard() {}
