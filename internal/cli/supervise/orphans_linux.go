package supervise

import (
	"errors"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every process that the program leaves behind, whether this process is process 1 or
// not, and reaps those that exit. Otherwise zombies would stay wherever process 1 does not reap, as in many containers. The function
// that it returns ends that.
func adoptOrphans() (stop func()) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // an error leaves the orphans to process 1
	ownChildren.setAdopting(true)
	exits := make(chan os.Signal, 1)
	signal.Notify(exits, unix.SIGCHLD)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range exits {
			ownChildren.reapOrphans()
		}
	}()
	return func() {
		signal.Stop(exits)
		close(exits)
		<-done
		ownChildren.reapOrphans()
		ownChildren.setAdopting(false)
	}
}

func (c *children) setAdopting(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adopting = on
}

// reapOrphans reaps every zombie that is a child of this process but not one of its own, up to the first of its own: wait reaps that
// one, and calls reapOrphans again.
func (c *children) reapOrphans() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.adopting {
		pid := nextZombie()
		if pid == 0 || c.pids[pid] {
			return
		}
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// nextZombie returns the number of a child that has exited and was not reaped yet; 0 if there is none.
func nextZombie() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		// Package unix does not name the field si_pid. It follows three integers, and is aligned like a pointer.
		const word = unsafe.Sizeof(uintptr(0))
		const offset = (3*unsafe.Sizeof(info.Signo) + word - 1) / word * word
		return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset)))
	}
}
