//go:build linux || darwin

package supervise

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// closeInherited closes the descriptors above stderr that this process has inherited. Those are meant for the
// program, and a guardian that kept them would keep sockets and locks of the program in use. The Go runtime has descriptors of its own,
// which no program that this process executes would inherit; they stay open.
func closeInherited() {
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

// handOverSockets returns an environment in which the sockets of a service manager that were meant for one process are meant for another:
// sd_listen_fds(3) takes the descriptors from 3 on only in the process whose number is LISTEN_PID. Variables that were meant for any
// third process stay as they are.
func handOverSockets(env []string, from, to int) (out []string) {
	meant := slices.Contains(env, "LISTEN_PID="+strconv.Itoa(from))
	for _, entry := range env {
		switch name, _, _ := strings.Cut(entry, "="); {
		case meant && name == "LISTEN_PID":
			out = append(out, "LISTEN_PID="+strconv.Itoa(to))
		case meant && name == "LISTEN_PIDFDID": // identifies the first process, and is optional
		default:
			out = append(out, entry)
		}
	}
	return out
}
