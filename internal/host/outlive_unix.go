//go:build linux || darwin

package host

import (
	"os/signal"

	"golang.org/x/sys/unix"
)

// Outlive prepares this process to outlive the one that it guards or watches, and gives it a name in lists of processes. What ends the other
// process by its group, its terminal or its service manager is not to end this one too.
func Outlive(name string) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	NameProcess(name)
}
