package supervise

import (
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

// survives returns true, because macOS does not show how a process handles signals.
func survives(int, syscall.Signal) bool { return true }

// isStopped reports whether a process is stopped by a signal.
func isStopped(pid int) bool {
	const stopped = 4 // SSTOP
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && p.Proc.P_stat == stopped
}
