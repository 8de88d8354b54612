//go:build !linux && !darwin

package supervise

import "errors"

// Run returns an error: this system has no process groups, so run could not end all processes of a program.
func (r *Config) Run() error {
	return errors.New("run needs process groups and signals, which this system does not have: use it on Linux or macOS")
}

// PassGate does nothing, because Run starts no program.
func PassGate([]string) {}
