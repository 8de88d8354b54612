package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Supported says whether this system shows when a process has died.
const Supported = true

// Process is a process whose death the kernel reports. The zero Process is dead.
type Process struct {
	pidfds []*os.File // each of them must report the death
	image  *os.File   // of the process, see [newImage]; nil if there is none
}

// OpenProcess returns the process with a number. It is the caller's to know that the number is still that of the process which is meant.
func OpenProcess(pid int) (*Process, error) {
	fd, err := openPidfd(pid)
	if err != nil {
		return nil, err
	}
	p := &Process{}
	return p, p.watch(fd)
}

func openPidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("the kernel does not watch process %d: %w (this needs Linux 5.3 or newer, and that no security profile forbids pidfd_open)", pid, err)
	}
	return fd, nil
}

// watch adds a descriptor of the process, which then is the process's to close.
func (p *Process) watch(pidfd int) error {
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that Wait does not take a thread
		_ = unix.Close(pidfd)
		return os.NewSyscallError("fcntl", err)
	}
	p.pidfds = append(p.pidfds, os.NewFile(uintptr(pidfd), "pidfd"))
	return nil
}

// introduce tells a witness on a new connection which process this is: by a descriptor of the process, and one of its image. A relay passes on
// bytes and no descriptors, so nothing but this process itself is taken for it.
func introduce(conn *net.UnixConn) error {
	pidfd, err := openPidfd(os.Getpid())
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(pidfd) }()
	rights := []int{pidfd}
	if image := ownImage(); image != nil {
		rights = append(rights, int(image.Fd()))
	}
	line, err := encode(message{Hello: &hello{}})
	if err == nil {
		_, _, err = conn.WriteMsgUnix(line, unix.UnixRights(rights...), nil)
	}
	return err
}

// maxRights is how many descriptors a program passes: of its process and of its image.
const maxRights = 2

// meet returns the process that introduced itself on a connection.
//
// The process that connected must be dead, too, where the kernel tells which it is: so nobody has a process released by the death of another.
func meet(conn *net.UnixConn) (*Process, error) {
	line, control := make([]byte, maxMessageBytes), make([]byte, unix.CmsgSpace(4*maxRights))
	n, controlSize, _, _, err := conn.ReadMsgUnix(line, control)
	if err != nil {
		return nil, err
	}
	p := &Process{}
	passed, err := passedFiles(control[:controlSize])
	if err == nil && len(passed) > 0 {
		err = p.takeRights(passed)
	}
	_, ok := parseHello(line[:n])
	switch {
	case err != nil:
	case !ok:
		err = errNoHello
	case len(p.pidfds) == 0:
		err = errNoProcess
	default:
		err = p.watchPeer(conn)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// passedFiles returns the descriptors that came with a message.
func passedFiles(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	for i := range messages {
		if rights, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, rights...)
		}
	}
	return fds, err
}

// takeRights takes the descriptors of a process and of its image, or closes them.
func (p *Process) takeRights(fds []int) error {
	for _, fd := range fds[1:] {
		file := os.NewFile(uintptr(fd), "image")
		if p.image != nil || !errors.Is(seal(file), unix.EBUSY) { // nothing shows that it is the image of a process that runs
			_ = file.Close()
			continue
		}
		p.image = file
	}
	if !isPidfd(fds[0]) {
		_ = unix.Close(fds[0])
		return errNoProcess
	}
	return p.watch(fds[0])
}

// isPidfd reports whether a descriptor is that of a process. Linux 5.3, which cannot tell, takes each for one.
func isPidfd(fd int) bool {
	for {
		err := unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.EBADF)
		}
	}
}

// watchPeer adds the process that connected, if the kernel tells which it is: it does not before Linux 6.5 where that is in another container.
func (p *Process) watchPeer(conn *net.UnixConn) error {
	pidfd, err := ofPeer(conn, func(socket int) (int, error) { return unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	if err == nil {
		return p.watch(pidfd)
	}
	credentials, err := credentialsOf(conn)
	if err != nil || credentials.Pid == 0 {
		return err
	}
	pidfd, err = unix.PidfdOpen(int(credentials.Pid), 0)
	if err != nil { // it is dead, or this process may not watch it
		return nil
	}
	return p.watch(pidfd) // should the number be another process's by now, that process lives on, and nothing is released
}

func credentialsOf(conn *net.UnixConn) (*unix.Ucred, error) {
	return ofPeer(conn, func(socket int) (*unix.Ucred, error) {
		return unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
}

// peerUser returns the number of the user that connected.
func peerUser(conn *net.UnixConn) (uid uint32, err error) {
	credentials, err := credentialsOf(conn)
	if err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}

// Wait waits until all threads of the process have ended. It returns an error if ctx ends before.
func (p *Process) Wait(ctx context.Context) error {
	for _, pidfd := range p.pidfds {
		if err := waitReadable(ctx, pidfd); err != nil {
			return err
		}
	}
	return nil
}

func waitReadable(ctx context.Context, pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })()
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

// ImageEnded reports whether the image has ended that the process had: because the process replaced itself by exec, or is dead. Then all threads
// that ran in the image have ended. It reports false if the kernel does not show that.
func (p *Process) ImageEnded() bool { return p.image != nil && seal(p.image) == nil }

// inheritImage takes the descriptor of the image that the process passed to this one when it started it; there may be none. The image may have ended.
func (p *Process) inheritImage(fd int) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		p.image = os.NewFile(uintptr(fd), "image")
	}
}

// seal forbids to write to a file in memory. The kernel refuses that for as long as any process has the file mapped to write to it.
func seal(file *os.File) error {
	_, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return err
}

// Close ends the watch.
func (p *Process) Close() {
	for _, pidfd := range p.pidfds {
		_ = pidfd.Close()
	}
	if p.image != nil {
		_ = p.image.Close()
	}
}

// ownImage returns the file that shows that the image of this process runs; nil if the kernel offers none.
var ownImage = sync.OnceValue(func() *os.File {
	file, err := newImage()
	if err != nil {
		return nil
	}
	return file
})

// newImage returns a file in memory, and maps it for as long as the image of this process lasts. An image ends by exec, or with the process. Then
// the mapping ends, too, and only then the file can be sealed. No descriptor shows that: it can be closed by mistake.
func newImage() (*os.File, error) {
	fd, err := unix.MemfdCreate("witness", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // the kernel is older than 6.3
		fd, err = unix.MemfdCreate("witness", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "image")
	size := os.Getpagesize()
	if err := file.Truncate(int64(size)); err != nil {
		_ = file.Close()
		return nil, err
	}
	mapping, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) // never unmapped
	if err == nil {
		err = unix.Madvise(mapping, unix.MADV_DONTFORK) // a copy of the process is another image
	}
	if err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("mmap", err)
	}
	return file, nil
}
