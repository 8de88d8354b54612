//go:build !unix

package cli

import "os/exec"

// ownGroup does nothing: this system has no process groups, and only the command itself is killed.
func ownGroup(*exec.Cmd) {}
