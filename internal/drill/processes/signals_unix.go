//go:build linux || darwin

package processes

import (
	"os"
	"syscall"
)

// Signals that stop a process where it is, and continue it.
const (
	SignalStop     = syscall.SIGSTOP
	SignalContinue = syscall.SIGCONT
)

// signalReload makes a server reload its configuration.
const signalReload = syscall.SIGHUP

// signalGroup sends a signal to a process that leads its process group, and to the processes that it started.
func signalGroup(p *os.Process, s os.Signal) error { return syscall.Kill(-p.Pid, s.(syscall.Signal)) }

// signalTerminate asks a process to shut down in order.
var signalTerminate os.Signal = syscall.SIGTERM
