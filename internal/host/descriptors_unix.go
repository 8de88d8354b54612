//go:build linux || darwin

package host

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes the descriptors above stderr that this process has inherited. Those are meant for the
// program, and a guardian that kept them would keep sockets and locks of the program in use. The Go runtime has descriptors of its own,
// which no program that this process executes would inherit; they stay open.
func CloseInherited() {
	entries, _ := os.ReadDir("/dev/fd")
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= unix.Stderr {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
