//go:build linux || darwin

package supervise

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
)

// The delay before a restart doubles with each restart in a row, from the minimum to the maximum.
const (
	minRestartDelay   = 100 * time.Millisecond
	maxRestartDelay   = 30 * time.Second
	restartResetAfter = 30 * time.Second // a program that ran for this long resets the delay
)

// restartDelay returns how long to wait before the program is started again, a random time between half the delay and the whole
// delay. It returns false if the program is not to be started again: --restart decides, but a program that a user ended, by a
// signal to run or at the terminal, is never started again.
func (r *runner) restartDelay(x execution) (delay time.Duration, restart bool) {
	if r.interrupted.Load() || interruptedAtTerminal(x.program) {
		return 0, false
	}
	if r.Restart == RestartNever || r.Restart == RestartOnFailure && x.exit.Code == cli.ExitOK {
		return 0, false
	}
	if x.ran >= restartResetAfter {
		r.failures = 0
	}
	longest := maxRestartDelay
	if r.failures < 16 { // a larger shift might overflow
		longest = min(minRestartDelay<<r.failures, maxRestartDelay)
	}
	r.failures++
	delay = longest/2 + rand.N(longest/2)
	if x.exit.Message != "" {
		r.log.Error("Program not started", "error", x.exit.Message)
	}
	r.log.Info("Program is started again", "in", terminal.FormatDuration(delay), "leadership", r.OnExit)
	return delay, true
}

// interruptedAtTerminal reports whether the user ended the program by Ctrl-C or Ctrl-\ at its terminal.
func interruptedAtTerminal(p *program) bool {
	return p != nil && p.hasTerminal && p.status.Signaled() && (p.status.Signal() == unix.SIGINT || p.status.Signal() == unix.SIGQUIT)
}
