//go:build !linux && !darwin

package processes

import (
	"os"
	"syscall"
)

// Processes cannot be stopped on this system, which the command says before any of these is used.
const (
	SignalStop     = syscall.Signal(0)
	SignalContinue = syscall.Signal(0)
	signalReload   = syscall.Signal(0)
)

var leaveInOrder = os.Interrupt

func apart() *syscall.SysProcAttr { return nil }
