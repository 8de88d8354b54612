//go:build linux || darwin

package supervise

import (
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// tty is the one that the program is to have, if there is one.
type tty struct {
	fd int // -1 if there is none
}

// findTerminal returns the terminal that stdin is. Ctrl-Z is ignored on it, by the program too unless that decides
// otherwise: a leader that stopped would lose its lease.
func findTerminal(stdin io.Reader) tty {
	f, ok := stdin.(*os.File)
	if !ok {
		return tty{-1}
	}
	fd := int(f.Fd())
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
		return tty{-1}
	}
	signal.Ignore(unix.SIGTSTP, unix.SIGTTOU) // the latter, or this process could not take the terminal back
	return tty{fd}
}

// ours says whether this process may hand out the terminal: it may not in the background.
func (t tty) ours() bool {
	if t.fd < 0 {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// takeBack takes the terminal back from the program.
func (t tty) takeBack(p *program) {
	if p.terminal {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	}
}
