//go:build linux || darwin

package supervise

import (
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// tty is the terminal that run lends to the program, if there is one.
type tty struct {
	fd    int           // -1 if there is no terminal
	modes *unix.Termios // as they were before the program started; nil if there is no terminal
}

// findTerminal returns stdin if it is a terminal. This process then ignores Ctrl-Z, and so does the program unless it decides
// otherwise, because a leader that is stopped loses its lease.
func findTerminal(stdin io.Reader) tty {
	f, ok := stdin.(*os.File)
	if !ok {
		return tty{fd: -1}
	}
	fd := int(f.Fd())
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
		return tty{fd: -1}
	}
	modes, _ := unix.IoctlGetTermios(fd, getModes)
	signal.Ignore(unix.SIGTSTP, unix.SIGTTOU) // TTOU would stop this process when it reclaims the terminal
	return tty{fd, modes}
}

// isForeground reports whether this process is in the foreground of the terminal, and so may lend it to the program.
func (t tty) isForeground() bool {
	if t.fd < 0 {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// reclaim puts this process into the foreground again, if the program had the terminal. It restores the modes of the terminal if a
// signal ended the program, which then had no chance to: after an editor the terminal would show nothing that is typed.
func (t tty) reclaim(p *program) {
	if !p.hasTerminal {
		return
	}
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	if t.modes != nil && p.hasExited() && p.status.Signaled() {
		_ = unix.IoctlSetTermios(t.fd, setModes, t.modes)
	}
}
