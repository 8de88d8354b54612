//go:build linux || darwin

package supervise

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
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

// guardIfAsked makes this process a guardian or a deputy if its arguments say so: it carries out the orders on its standard input, kills the group
// of the last order when the input ends, and exits.
func guardIfAsked(args []string) {
	switch {
	case len(args) == guardianArgs && args[1] == GuardianCommand:
		host.Outlive("guardian")
		endDeputy := startDeputy(inheritedFile(args[2]), inheritedFile(args[3]))
		carryOut(os.Stdin)
		endDeputy() // whatever it would do is done
	case len(args) > 1 && slices.Equal(args[:len(deputyArgs)], deputyArgs):
		host.Outlive("deputy")
		carryOut(os.Stdin)
	default:
		return
	}
	os.Exit(cli.ExitOK)
}

// guardianArgs is the number of arguments of a guardian: this command's name, GuardianCommand, and the numbers of two files for the deputy.
const guardianArgs = 4

// deputyArgs are the first arguments of a deputy. They name neither this command nor a guardian: see guardian.
var deputyArgs = []string{"deputy", "of-run"}

// startDeputy starts the deputy of this guardian, which reads its orders from one file and keeps the other open for as long as it lives. This
// process keeps no file that it has inherited but its orders. Without a deputy, run starts another guardian.
func startDeputy(in, lives *os.File) (end func()) {
	host.CloseInherited()
	defer func() { _, _ = in.Close(), lives.Close() }()
	path, err := host.ExecutablePath()
	if err != nil {
		return func() {}
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = append(slices.Clone(deputyArgs), strconv.Itoa(os.Getppid())), []string{}
	cmd.Stdin, cmd.Stdout, cmd.SysProcAttr = in, lives, &syscall.SysProcAttr{Setsid: true}
	if cmd.Start() != nil {
		return func() {}
	}
	return func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
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
