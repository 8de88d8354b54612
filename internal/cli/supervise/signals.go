//go:build linux || darwin

package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// interruption is the cause that ends a run after a signal to this process.
type interruption struct{ signal syscall.Signal }

// Error names the signal.
func (i interruption) Error() string { return "interrupted by " + unix.SignalName(i.signal) }

// parseSignal parses a signal as kill(1) does: a name with or without SIG, or a number. It returns byDefault for an empty name.
func parseSignal(flag, name string, byDefault syscall.Signal) (syscall.Signal, error) {
	if name == "" {
		return byDefault, nil
	}
	s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if n, err := strconv.Atoi(name); err == nil && unix.SignalName(syscall.Signal(n)) != "" {
		s = syscall.Signal(n)
	}
	if s == 0 || s == unix.SIGKILL || s == unix.SIGSTOP {
		return 0, fmt.Errorf("%s %q is not a signal that a program can handle: give one such as USR1 or HUP", flag, name)
	}
	return s, nil
}

// forwardSignals forwards signals to the program until stop is called.
func (r *runner) forwardSignals() (stop func()) {
	// If nothing reads stderr any more, writing to it must fail rather than end this process: so catch SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	signals := []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}
	if !signal.Ignored(unix.SIGHUP) { // nohup ignores HUP for the program too
		signals = append(signals, unix.SIGHUP)
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c, signals...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range c {
			if s, ok := s.(syscall.Signal); ok {
				r.forward(s)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
		<-done
	}
}

// forward forwards a signal to the program. INT, TERM, and HUP while no program runs, also end the run.
func (r *runner) forward(s syscall.Signal) {
	r.starting.Lock() // a signal that arrives while the program is being started is for that program
	p := r.current.Load()
	r.starting.Unlock()
	ends := s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP && p == nil
	if ends {
		r.interrupted.Store(true) // before the signal can end the program, so that the program is not started again
	}
	switch {
	case p != nil && ends:
		r.log.Info("Terminating the program, and this command with it", "signal", unix.SignalName(s), "kill-at", r.killAt(p))
		p.terminate(s)
	case p != nil:
		r.log.Debug("Signal is forwarded to the program", "signal", unix.SignalName(s))
		p.signalGroup(s)
	}
	if ends {
		r.finish(interruption{s})
	}
}
