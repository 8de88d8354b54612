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

// Process is a process whose death the kernel reports. The zero Process is dead.
type Process struct {
	pid   int // 0 if it is dead
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
	switch _, err := unix.Kevent(queue, change, nil, nil); {
	case errors.Is(err, unix.ESRCH):
		_ = unix.Close(queue)
		return &Process{}, nil
	case err != nil:
		_ = unix.Close(queue)
		return nil, fmt.Errorf("the kernel does not watch process %d: %w", pid, err)
	}
	return &Process{pid, queue}, nil
}

// introduce tells a witness on a new connection which process this is: by its number and the time of its start. This system passes no descriptor of
// a process.
func introduce(conn *net.UnixConn) error {
	started, err := startOf(os.Getpid())
	if err != nil {
		return err
	}
	line, err := encode(message{Hello: &hello{PID: os.Getpid(), Started: started}})
	if err == nil {
		_, err = conn.Write(line)
	}
	return err
}

// startOf returns when a process started, in microseconds. Together with its number that identifies the process.
func startOf(pid int) (int64, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, os.NewSyscallError("sysctl kern.proc.pid", err)
	}
	return info.Proc.P_starttime.Sec*1e6 + int64(info.Proc.P_starttime.Usec), nil
}

// meet returns the process that introduced itself on a connection. It must be the one that connected: a relay has another number, or another start.
func meet(conn *net.UnixConn) (*Process, error) {
	line := make([]byte, maxMessageBytes)
	n, err := conn.Read(line)
	if err != nil {
		return nil, err
	}
	h, ok := parseHello(line[:n])
	if !ok {
		return nil, errNoHello
	}
	pid, err := ofPeer(conn, func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID) })
	switch {
	case err != nil:
		return nil, err
	case pid != h.PID || pid <= 0:
		return nil, errNoProcess
	}
	p, err := OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	if started, err := startOf(pid); err != nil || started != h.Started { // the number may be another process's by now, or the same on another machine
		p.Close()
		return nil, errNoProcess
	}
	return p, nil
}

// peerUser returns the number of the user that connected.
func peerUser(conn *net.UnixConn) (uid uint32, err error) {
	credentials, err := ofPeer(conn, func(fd int) (*unix.Xucred, error) {
		return unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err != nil {
		return 0, err
	}
	return credentials.Uid, nil
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

// ImageEnded returns false: nothing shows the end of an image here while its process lives.
func (*Process) ImageEnded() bool { return false }

// inheritImage does nothing: this system has no images.
func (*Process) inheritImage(int) {}

// ownImage returns nil: this system has no images.
func ownImage() *os.File { return nil }

// Close ends the watch.
func (p *Process) Close() {
	if p.pid != 0 {
		_ = unix.Close(p.queue)
	}
}
