package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// NameProcess does nothing, because macOS names a process after its executable.
func NameProcess(string) {}

// ExecutablePath returns the path of this executable.
func ExecutablePath() (string, error) { return os.Executable() }

// GroupRuns reports whether any process of a group still runs. A zombie does not; a process whose state is unknown does.
func GroupRuns(group int) bool {
	const zombie = 5 // SZOMB
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", group)
	for _, p := range all {
		if p.Proc.P_stat != zombie {
			return true
		}
	}
	return err != nil
}
