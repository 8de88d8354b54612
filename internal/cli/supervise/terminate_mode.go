//go:build linux || darwin

package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

// runTerminateMode takes part in the election, and runs the program only while this candidate leads, until the run ends.
func (r *runner) runTerminateMode(ctx context.Context) {
	maxWait := r.startMaxWait()
	defer maxWait.Stop()
	c := r.connect(ctx)
	if c == nil {
		return
	}
	if r.NoWait {
		if leader, err := c.leader(ctx, r.Key); err == nil {
			r.finish(r.conflictWith(&leader))
		}
	}
	for ctx.Err() == nil {
		var delay time.Duration
		r.campaign(ctx, c, func(ctx context.Context, t election.Term, withdraw func()) {
			maxWait.Stop()
			if delay = r.lead(ctx, &t); delay != 0 || r.programExit != nil || t.Valid() {
				withdraw()
			} else if r.MaxWaitSet {
				maxWait.Reset(r.MaxWait)
			}
		})
		switch {
		case r.programExit != nil:
			r.finish(errProgramEnded)
		case r.NoWait && delay == 0:
			r.finish(r.conflictWith(nil))
		}
		_ = timeutil.Pause(ctx, delay)
		if r.MaxWaitSet && ctx.Err() == nil {
			maxWait.Reset(r.MaxWait)
		}
	}
}

// startMaxWait returns a timer that ends the run when --max-wait is over. Without --max-wait it never fires.
func (r *runner) startMaxWait() *time.Timer {
	t := time.AfterFunc(maxDuration, func() {
		r.finish(&cli.ExitError{Code: ExitTimedOut, Message: fmt.Sprintf("this candidate did not lead %q within --max-wait %v; %s says why", r.Key, r.MaxWait, r.NameCommand("check "+r.Key))})
	})
	if r.MaxWaitSet {
		t.Reset(r.MaxWait)
	}
	return t
}

// lead runs the program in a term, until leadership ends or the program is not started again in this term. A positive delay
// says how long to wait before the next campaign, after which the program is started again.
func (r *runner) lead(ctx context.Context, t *election.Term) (delay time.Duration) {
	for ctx.Err() == nil {
		x, tried := r.runProgram(ctx, t)
		if !tried {
			return 0
		}
		if r.interrupted.Load() {
			r.programExit = x.exit
			return 0
		}
		if x.terminated {
			return 0
		}
		delay, restart := r.restartDelay(x)
		if !restart {
			r.programExit = x.exit
			r.hold(ctx, x)
			return 0
		}
		if r.OnExit == OnExitRelease {
			return delay
		}
		_ = timeutil.Pause(ctx, delay)
	}
	return 0
}

// hold keeps the key after the program has exited, for as long as --hold-at-least says: a host whose clock is late then finds it held, and does not
// run the program for the same time of its timetable again.
func (r *runner) hold(ctx context.Context, x execution) {
	left := r.HoldAtLeast - x.ran
	if x.program == nil || left <= 0 {
		return
	}
	r.log.Info("Program has exited, the key is held on", "exit_code", x.exit.Code, "for", terminal.FormatDuration(left))
	_ = timeutil.Pause(ctx, left)
}
