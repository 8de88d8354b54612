//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardianCheckInterval is how often the guardian reads the clocks: timers do not advance while a machine is suspended.
	guardianCheckInterval = 250 * time.Millisecond
	// newerOrderDelay is how long the guardian waits for a newer order before it carries out an order that is due. It must be
	// less than half of minKillTime, because an order to kill is due when half of the kill time is left.
	newerOrderDelay = 5 * time.Millisecond
)

// Guard makes this process a guardian: it carries out the orders on its standard input, kills the group of the last order when
// the input ends, and returns.
func Guard() {
	// A service manager that stops a service signals all its processes. The guardian must outlive run, and ends with its input.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	carryOut(os.Stdin)
}

// carryOut carries out the orders in a pipe until the process at the other end is gone.
func carryOut(in *os.File) {
	orders := make(chan order, 1)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(in); ; {
			var next order
			if d.Decode(&next) != nil {
				return
			}
			orders <- next
		}
	}()
	var current order
	for ok := true; ok; {
		// The guardian may have been stopped when the order fell due, and a newer order may be in the pipe, still unread. So it
		// carries out an order only if no newer one arrives within newerOrderDelay after it saw that the order is due.
		wait, due := guardianCheckInterval, current.isDue()
		switch {
		case due:
			wait = newerOrderDelay
		case current.Target != 0:
			wait = min(current.remaining(), guardianCheckInterval)
		}
		timer := time.NewTimer(wait)
		var next order
		select {
		case next, ok = <-orders:
			if ok {
				current = next
			}
		case <-timer.C:
			if due && len(orders) == 0 && !hasInput(in) {
				_ = unix.Kill(current.Target, current.Signal)
				current.Target = 0
			}
		}
	}
	if current.Group != 0 {
		_ = unix.Kill(-current.Group, unix.SIGKILL)
	}
}

// hasInput reports whether a pipe holds unread data.
func hasInput(pipe *os.File) bool {
	ready := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(ready, 0)
	return err == nil && ready[0].Revents&unix.POLLIN != 0
}
