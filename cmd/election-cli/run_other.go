//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/choria-io/fisk"
)

// run refuses: here nothing ends a program with all that it started.
func (r *runFlags) run() error {
	return errors.New("run needs process groups and signals, which this system does not have: use it on Linux or macOS")
}

// registerGuardian does nothing, as there is nothing to guard.
func registerGuardian(*fisk.Application) {}

// passGate does nothing, as no program is started.
func passGate([]string) {}
