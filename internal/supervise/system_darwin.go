package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// programAttributes puts a program into a process group of its own, in the foreground of the terminal if it gets the terminal.
// macOS cannot kill the program when this process ends: only the guardian does.
func programAttributes(hasTerminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: hasTerminal, Ctty: syscall.Stdin}
}

// The requests that read and set the modes of a terminal.
const getModes, setModes = unix.TIOCGETA, unix.TIOCSETA

// dieWithParent does nothing, because macOS has no such request.
func dieWithParent() {}

// nameProcess does nothing, because macOS names a process after its executable.
func nameProcess(string) {}

// executablePath returns the path of this executable.
func executablePath() (string, error) { return os.Executable() }

// survives returns true, because macOS does not show how a process handles signals.
func survives(int, syscall.Signal) bool { return true }

// isStopped reports whether a process is stopped by a signal.
func isStopped(pid int) bool {
	const stopped = 4 // SSTOP
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && p.Proc.P_stat == stopped
}

// groupRuns reports whether any process of a group still runs. A zombie does not; a process whose state is unknown does.
func groupRuns(group int) bool {
	const zombie = 5 // SZOMB
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", group)
	for _, p := range all {
		if p.Proc.P_stat != zombie {
			return true
		}
	}
	return err != nil
}
