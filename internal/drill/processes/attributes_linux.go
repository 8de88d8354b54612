package processes

import "syscall"

// sysProcAttr returns attributes that keep the signals of a terminal away from a child process. They also end the child together
// with this process, even a stopped child, which cannot notice that its input ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// programAttr returns attributes that end a nats-server program together with the child process that runs it.
func programAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
