//go:build linux || darwin

package supervise

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/host"
)

const (
	// guardianCheckInterval is how often the guardian reads the clocks: timers do not advance while a machine is suspended.
	guardianCheckInterval = 250 * time.Millisecond
	// newerOrderDelay is how long the guardian waits for a newer order before it carries out an order that is due: run may have been
	// stopped together with the guardian. It must be less than half of minKillTime, because an order to kill is due when half of the
	// kill time is left. When none is left, as after a freeze of the whole host, the guardian does not wait: another host may lead.
	newerOrderDelay = 5 * time.Millisecond
)

// Guard makes this process a guardian: it starts its deputy, carries out the orders on its standard input, kills the group of the last
// order when the input ends, and returns. The arguments are those of the process; the numbers of two files for the deputy are among them.
func Guard() {
	becomeGuardian("guardian")
	var deputy *exec.Cmd
	if len(os.Args) == guardianArgs {
		in, lives := inheritedFile(os.Args[2]), inheritedFile(os.Args[3])
		host.CloseInherited()
		deputy = startDeputy(in, lives)
		_, _ = in.Close(), lives.Close()
	}
	carryOut(os.Stdin)
	if deputy != nil { // whatever it would do is done
		_ = deputy.Process.Kill()
		_ = deputy.Wait()
	}
}

const guardianArgs = 4 // number of arguments of a guardian: this command's name, GuardianCommand, the numbers of two files

// deputyArgs are the first arguments of a deputy. They name neither this command nor a guardian: see guardian.
var deputyArgs = []string{"deputy", "of-run"}

// startDeputy starts the deputy of this guardian; nil if it cannot be started. The deputy keeps one file open for as long as it lives.
func startDeputy(in, lives *os.File) *exec.Cmd {
	path, err := host.ExecutablePath()
	if err != nil {
		return nil
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = append(slices.Clone(deputyArgs), strconv.Itoa(os.Getppid())), []string{}
	cmd.Stdin, cmd.Stdout, cmd.SysProcAttr = in, lives, &syscall.SysProcAttr{Setsid: true}
	if cmd.Start() != nil {
		return nil
	}
	return cmd
}

// guardIfAsked makes this process a guardian or a deputy if its arguments say so, and exits when its work is done.
func guardIfAsked(args []string) {
	switch {
	case len(args) > 1 && args[1] == GuardianCommand:
		Guard()
	case len(args) > 1 && slices.Equal(args[:len(deputyArgs)], deputyArgs):
		becomeGuardian("deputy")
		carryOut(os.Stdin)
	default:
		return
	}
	os.Exit(cli.ExitOK)
}

// becomeGuardian prepares this process to carry out orders, under the given name.
func becomeGuardian(name string) {
	// A service manager that stops a service signals all its processes. The guardian must outlive run, and ends with its input.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	host.NameProcess(name)
}

// carryOut carries out the orders in a pipe until the process at the other end is gone. One goroutine reads the orders and carries them
// out, so that it never acts on an order while a newer one is in the pipe: the guardian may have been stopped when an order fell due.
func carryOut(in *os.File) {
	orders := bufio.NewReader(in)
	var current order
	for {
		wait, due := guardianCheckInterval, current.isDue()
		switch {
		case due && current.isTooLate():
			wait = 0
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
