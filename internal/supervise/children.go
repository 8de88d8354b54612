//go:build linux || darwin

package supervise

import (
	"os/exec"
	"sync"
)

// ownChildren are the children that this process has started and waits for itself: the program and the guardian process. The list
// belongs to the whole process, as wait(2) does. Nothing else may reap them: their exit status would be lost.
var ownChildren = children{pids: map[int]bool{}}

type children struct {
	mu       sync.Mutex
	pids     map[int]bool
	adopting bool // this process reaps orphans: every child that is not listed is one
}

// start starts a command. No child is reaped between its start and its registration.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
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
