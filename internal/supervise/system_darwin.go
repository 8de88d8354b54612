package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// programAttributes puts a program into a group of its own, in the foreground of the terminal if it is to have that. That
// it ends with this process is the guardian's work.
func programAttributes(terminal bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: terminal, Ctty: syscall.Stdin}
}

// endWithParent does nothing: here it is the guardian's work.
func endWithParent() {}

// ownPath is where this program can be executed.
func ownPath() (string, error) { return os.Executable() }

// minds says that a process minds a signal, for it cannot be told here.
func minds(int, syscall.Signal) bool { return true }

// groupLives says whether any process of a group runs yet: one that is not a zombie, or of which that cannot be known.
func groupLives(group int) bool {
	const zombie = 5 // SZOMB
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", group)
	for _, p := range all {
		if p.Proc.P_stat != zombie {
			return true
		}
	}
	return err != nil
}
