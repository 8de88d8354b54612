//go:build linux || darwin

package supervise

import (
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ownChildren are the children that this process has started and waits for itself: the program and the guardian process. The list
// belongs to the whole process, as wait(2) does. Nothing else may reap them: their exit status would be lost.
var ownChildren = children{pids: map[int]bool{}}

type children struct {
	mu       sync.Mutex
	pids     map[int]bool
	adopting bool // this process reaps orphans: every child that is not listed is one
}

// start starts a command. No child is reaped between its start and its registration. The child also inherits the given files, under the
// numbers that they have in this process. The files of [exec.Cmd.ExtraFiles] would get the numbers from 3 on, and take the place of
// descriptors that this process has inherited for the program, such as the sockets of a service manager.
func (c *children) start(cmd *exec.Cmd, inherited ...*os.File) error {
	c.mu.Lock() // also keeps the files from every other child
	defer c.mu.Unlock()
	for _, f := range inherited {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		defer unix.CloseOnExec(int(f.Fd()))
	}
	err := cmd.Start()
	if err == nil {
		c.pids[cmd.Process.Pid] = true
	}
	return err
}

// wait waits for a command that start has started.
func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	delete(c.pids, cmd.Process.Pid)
	c.mu.Unlock()
	c.reapOrphans() // which a zombie of our own may have hidden
	return err
}

// fileNumber returns the number of a file, for the arguments of a child that inherits the file.
func fileNumber(f *os.File) string { return strconv.Itoa(int(f.Fd())) }

// inheritedFile returns the file that children.start passed to this process under a number.
func inheritedFile(number string) *os.File {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return nil
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), number)
}
