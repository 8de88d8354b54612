package host

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ListenUnix listens on a socket whose file has the given permissions. At no time has the file wider ones.
func ListenUnix(path string, mode fs.FileMode) (*net.UnixListener, error) {
	narrow, undo := narrower(mode)
	defer undo()
	config := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) (err error) {
		if controlErr := socket.Control(func(fd uintptr) { err = narrow(fd) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil { // which gives what the umask took away
		_ = l.Close()
		return nil, fmt.Errorf("the permissions of the socket: %w", err)
	}
	return l.(*net.UnixListener), nil
}
