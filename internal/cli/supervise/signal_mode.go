//go:build linux || darwin

package supervise

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	bucketTimeout       = time.Second     // how long the first start of the program waits for the bucket; the program starts in any case
	handlerTimeout      = 2 * time.Second // how long the first signal waits for a program that was just started to install its handlers
	handlerPollInterval = 5 * time.Millisecond
)

// runSignalMode runs the program all the time, and takes part in the election meanwhile. Signals notify the program when it
// leads and when it no longer does.
func (r *runner) runSignalMode(ctx context.Context) {
	var c *candidate // nil while the run takes no part in the election
	defer func() { c.withdraw() }()
	for ctx.Err() == nil {
		if c == nil {
			c = r.startCandidate(ctx)
		}
		select { // report an unfit bucket before the program starts, if possible
		case <-c.connected:
		case <-ctx.Done():
		case <-time.After(bucketTimeout):
		}
		if ctx.Err() != nil {
			return
		}
		x, _ := r.runProgram(ctx, nil)
		delay, restart := time.Duration(0), ctx.Err() == nil
		if restart {
			delay, restart = r.restartDelay(x)
		}
		if !restart {
			r.programExit = x.exit
			r.finish(errProgramEnded)
			return
		}
		if r.OnExit == OnExitRelease {
			c.withdraw()
			c = nil
		}
		_ = timeutil.Pause(ctx, delay)
	}
}

// candidate takes part in the election in the background, while the program runs.
type candidate struct {
	connected chan struct{} // closed when the bucket is open, or the run has ended because it cannot be
	cancel    context.CancelFunc
	done      chan struct{}
}

// startCandidate starts a candidate, which takes part until withdraw. It outlives ctx, because the program may lead until it has
// exited. An error of the candidate ends the run.
func (r *runner) startCandidate(ctx context.Context) *candidate {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &candidate{connected: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		conn := r.connect(ctx)
		close(c.connected)
		if conn == nil {
			return
		}
		for ctx.Err() == nil && r.campaign(ctx, conn, r.notifyProgram) {
			continue // notifyProgram withdrew because a lease was about to end: campaign again
		}
	}()
	return c
}

// withdraw ends the candidate's part in the election, and returns when the key is released if the candidate held it. It does
// nothing if c is nil.
func (c *candidate) withdraw() {
	if c != nil {
		c.cancel()
		<-c.done
	}
}

// notifyProgram signals the program that it leads, and later that it no longer does. It also notifies a program that is started
// again in the same term.
func (r *runner) notifyProgram(ctx context.Context, t election.Term, withdraw func()) {
	for ctx.Err() == nil {
		p := r.current.Load()
		if p == nil || p.hasExited() {
			_ = timeutil.Pause(ctx, handlerPollInterval)
			continue
		}
		r.awaitHandlers(ctx, p)
		r.witness.flush()
		if ctx.Err() != nil || p.hasExited() {
			continue
		}
		r.log.Info("Program notified that it leads", "signal", unix.SignalName(r.won), "term", t.Number)
		p.signal(r.won)
		r.awaitLoss(ctx, p, t)
		if p.hasExited() {
			continue
		}
		r.log.Info("Program notified that it leads no longer", "signal", unix.SignalName(r.lost), "term", t.Number)
		p.signal(r.lost)
		r.setOrderFor(p, order{Group: p.pid})
		if ctx.Err() == nil { // the lease is about to end: give the program its grace before the key is released
			r.notRenewed.Store(t.Number)
			grace, _ := r.graceAndKillTime()
			_ = timeutil.Pause(ctx, grace)
			withdraw()
		}
		return
	}
}

// awaitHandlers waits until the program survives both signals, for at most handlerTimeout. A program that was just started and
// has no handlers yet would die of them.
func (r *runner) awaitHandlers(ctx context.Context, p *program) {
	for end := time.Now().Add(handlerTimeout); time.Now().Before(end) && ctx.Err() == nil && !p.hasExited(); {
		if survives(p.pid, r.won) && survives(p.pid, r.lost) {
			return
		}
		_ = timeutil.Pause(ctx, handlerPollInterval)
	}
}

// awaitLoss returns when leadership has ended, when the lease is about to end, or when the program has exited. If this process
// is stopped, the guardian signals the loss to the program. The loss then stands, even if the lease was renewed meanwhile.
func (r *runner) awaitLoss(ctx context.Context, p *program, t election.Term) {
	for ctx.Err() == nil && !p.hasExited() {
		end := t.Deadline()
		grace, killTime := r.graceAndKillTime()
		untilLoss := timeutil.Remaining(end) - grace - killTime
		if untilLoss <= 0 {
			r.log.Warn("Lease is not renewed and about to end", "left", terminal.FormatDuration(timeutil.Remaining(end)))
			return
		}
		if r.setOrderFor(p, orderAt(end.Add(-grace-killTime/2), order{Group: p.pid, Target: p.pid, Signal: r.lost, Slack: killTime / 2})) {
			r.log.Warn("Leadership is given up: the guardian signalled its loss to the program while this process was stopped")
			return
		}
		timer := time.NewTimer(min(untilLoss, checkInterval))
		select {
		case <-ctx.Done():
		case <-p.exited:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// setOrderFor gives the guardian an order about a program, unless the program's group is gone: another group may have its number
// by then. It returns the result of setOrder.
func (r *runner) setOrderFor(p *program, o order) (wasDue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	wasDue, _ = r.guardian.setOrder(o)
	return wasDue
}
