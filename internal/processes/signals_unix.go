//go:build linux || darwin

package processes

import (
	"os"
	"syscall"
)

// Signals that stop a process where it is and let it go on.
const (
	SignalStop     = syscall.SIGSTOP
	SignalContinue = syscall.SIGCONT
)

// signalReload has a server read its configuration anew.
const signalReload = syscall.SIGHUP

// leaveInOrder is the signal that asks a process to wind up.
var leaveInOrder os.Signal = syscall.SIGTERM
