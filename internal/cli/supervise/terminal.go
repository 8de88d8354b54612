//go:build linux || darwin

package supervise

import (
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// tty is the terminal that run lends to the program, if there is one.
type tty struct {
	fd    int           // -1 if there is no terminal
	modes *unix.Termios // as they were before the program started; nil if there is no terminal
}

// findTerminal returns stdin if it is a terminal.
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
	signal.Ignore(unix.SIGTTOU) // TTOU would stop this process when it reclaims the terminal
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

// lend puts the program into the foreground.
func (t tty) lend(p *program) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, p.pid) }

// ownsJob reports whether the program, or this process, is in the foreground of the terminal: then the user stopped it there.
func (t tty) ownsJob(p *program) bool {
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && (foreground == p.pid || foreground == unix.Getpgrp())
}

// suspend stops this process together with its program, as Ctrl-Z does to a job, and continues the program when the shell continues this
// process. Where no shell controls jobs the system does not stop this process, and the program goes on at once. While this process is
// stopped its lease is not renewed: the guardian kills the program before the lease ends.
func (t tty) suspend(p *program) {
	modes, _ := unix.IoctlGetTermios(t.fd, getModes)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	if t.modes != nil {
		_ = unix.IoctlSetTermios(t.fd, setModes, t.modes)
	}
	stopGroup()
	if t.isForeground() {
		if modes != nil {
			_ = unix.IoctlSetTermios(t.fd, setModes, modes)
		}
		t.lend(p)
	}
	p.signalGroup(unix.SIGCONT)
}

// stopDelay is how long the system may take to stop this process after the signal for it.
const stopDelay = 100 * time.Millisecond

// stopGroup stops the process group of this process, as Ctrl-Z does, and returns when it was continued, or after stopDelay if the system
// does not stop it because no shell controls jobs. The signal may reach another thread first, so that this one goes on for a moment.
func stopGroup() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	_ = unix.Kill(0, unix.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(stopDelay):
	}
}
