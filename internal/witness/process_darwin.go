package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Supported says whether this system shows when a process has died.
const Supported = true

// Process is a process whose death the kernel reports.
type Process struct {
	pid   int
	queue int // of the kernel's events
}

// OpenProcess returns the process with a number. It is the caller's to know that the number is still that of the process which is meant.
func OpenProcess(pid int) (*Process, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(queue)
	change := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	if _, err := unix.Kevent(queue, change, nil, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		_ = unix.Close(queue)
		return nil, fmt.Errorf("the kernel does not watch process %d: %w", pid, err)
	} else if err != nil {
		pid = 0 // it is dead
	}
	return &Process{pid, queue}, nil
}

// Peer returns the process that connected a socket.
func Peer(conn *net.UnixConn) (p *Process, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		pid := 0
		if pid, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
			p, err = OpenProcess(pid) // should the number be another process's by now, that process lives on, and nothing is released
		}
	})
	return p, errors.Join(controlErr, err)
}

// checkInterval is how often Wait looks whether its context has ended.
const checkInterval = 250 * time.Millisecond

// Wait waits until the process has exited. It returns an error if ctx ends before.
func (p *Process) Wait(ctx context.Context) error {
	limit := unix.NsecToTimespec(checkInterval.Nanoseconds())
	for events := make([]unix.Kevent_t, 1); p.pid != 0; {
		n, err := unix.Kevent(p.queue, nil, events, &limit)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("kevent", err)
		}
	}
	return nil
}

// Close ends the watch.
func (p *Process) Close() { _ = unix.Close(p.queue) }
