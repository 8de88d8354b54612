//go:build linux || darwin

package supervise

import (
	"bufio"
	"encoding/json"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardianCheckInterval is how often the guardian reads the clocks: timers do not advance while a machine is suspended.
	guardianCheckInterval = 250 * time.Millisecond
	// newerOrderDelay is how long the guardian waits for a newer order before it carries out an order that is due: run may have been
	// stopped together with the guardian. It must be less than half of minKillTime, because an order to kill is due when half of the
	// kill time is left.
	newerOrderDelay = 5 * time.Millisecond
)

// Guard makes this process a guardian: it carries out the orders on its standard input, kills the group of the last order when
// the input ends, and returns.
func Guard() {
	// A service manager that stops a service signals all its processes. The guardian must outlive run, and ends with its input.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	carryOut(os.Stdin)
}

// carryOut carries out the orders in a pipe until the process at the other end is gone. One goroutine reads the orders and carries them
// out, so that it never acts on an order while a newer one is in the pipe: the guardian may have been stopped when an order fell due.
func carryOut(in *os.File) {
	orders := bufio.NewReader(in)
	var current order
	for {
		wait, due := guardianCheckInterval, current.isDue()
		switch {
		case due:
			wait = newerOrderDelay
		case current.Target != 0:
			wait = min(current.remaining(), guardianCheckInterval)
		}
		if orders.Buffered() == 0 {
			ready, err := awaitInput(in, wait)
			if err == nil && !ready && due {
				_ = unix.Kill(current.Target, current.Signal)
				current.Target = 0
			}
			if !ready {
				continue
			}
		}
		var next order
		if line, err := orders.ReadBytes('\n'); err != nil || json.Unmarshal(line, &next) != nil {
			break
		}
		current = next
	}
	if current.Group != 0 {
		_ = unix.Kill(-current.Group, unix.SIGKILL)
	}
}

// awaitInput waits until a pipe has data or its other end is closed, and reports whether that is so. An error, such as a signal, leaves
// open whether it is.
func awaitInput(pipe *os.File, timeout time.Duration) (ready bool, err error) {
	fds := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int((max(timeout, 0)+time.Millisecond-1)/time.Millisecond))
	return n > 0, err
}
