//go:build linux || darwin

package supervise

import (
	"slices"
	"strconv"
	"strings"
)

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
