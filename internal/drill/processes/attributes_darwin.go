package processes

import "syscall"

// sysProcAttr returns attributes that keep the signals of a terminal away from a child process. The child ends with this process
// because its input ends.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// programAttr returns no attributes: a nats-server program ends with its process group, or when the input of the process that runs it ends.
func programAttr() *syscall.SysProcAttr { return nil }
