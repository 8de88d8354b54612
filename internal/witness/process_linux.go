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
type Process struct{ pidfd *os.File }

// OpenProcess returns the process with a number. It is the caller's to know that the number is still that of the process which is meant.
func OpenProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("the kernel does not watch process %d: %w (this needs Linux 5.3 or newer, and that no security profile forbids pidfd_open)", pid, err)
	}
	return newProcess(fd)
}

func newProcess(fd int) (*Process, error) {
	if err := unix.SetNonblock(fd, true); err != nil { // so that Wait does not take a thread
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Process{os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Peer returns the process that connected a socket. It returns nil where the kernel shows neither the process nor its number, as it does for
// a process of another container before Linux 6.5: then only the end of the connection shows that the process is dead.
func Peer(conn *net.UnixConn) (p *Process, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) { p, err = peer(int(fd)) })
	return p, errors.Join(controlErr, err)
}

func peer(fd int) (*Process, error) {
	if pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		return newProcess(pidfd)
	}
	credentials, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return nil, os.NewSyscallError("getsockopt", err)
	case credentials.Pid == 0:
		return nil, nil
	}
	return OpenProcess(int(credentials.Pid)) // should the number be another process's by now, that process lives on, and nothing is released
}

// Wait waits until all threads of the process have ended. It returns an error if ctx ends before.
func (p *Process) Wait(ctx context.Context) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) })()
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Close ends the watch.
func (p *Process) Close() { _ = p.pidfd.Close() }
