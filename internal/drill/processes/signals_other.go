//go:build !linux && !darwin

package processes

import (
	"os"
	"syscall"
)

// This system cannot stop and continue processes. The drill refuses to start before it would send one of these signals.
const (
	SignalStop     = syscall.Signal(0)
	SignalContinue = syscall.Signal(0)
	signalReload   = syscall.Signal(0)
)

var signalTerminate = os.Interrupt

func sysProcAttr() *syscall.SysProcAttr { return nil }

func programAttr() *syscall.SysProcAttr { return nil }

func signalGroup(p *os.Process, s os.Signal) error { return p.Signal(s) }
