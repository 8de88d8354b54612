package processes

import "syscall"

// apart keeps the signals of a terminal away from a process. It ends with this one because its input does.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
