package processes

import "syscall"

// apart keeps the signals of a terminal away from a process, and has it end with this one, stopped or not.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
