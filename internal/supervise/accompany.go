//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	standPatience   = time.Second     // for a bucket, before a program is started that runs in any case
	handlerPatience = 2 * time.Second // for a program that was just started to have its handlers
	handlerEvery    = 5 * time.Millisecond
)

// accompany runs the program all the time, stands in the election beside it, and tells it whether it leads.
func (r *runner) accompany(ctx context.Context) {
	var b beside
	defer func() { b.leave() }()
	for ctx.Err() == nil {
		if b.runner == nil {
			b = r.standBeside(ctx)
		}
		select { // what is wrong with the bucket is best said before the program is started
		case <-b.found:
		case <-ctx.Done():
		case <-time.After(standPatience):
		}
		if ctx.Err() != nil {
			return
		}
		end, ran := &cli.ExitError{}, time.Duration(0)
		p, err := r.start(nil)
		if err == nil {
			r.attend(ctx, p, nil)
			end.Code, ran = p.code(), time.Since(p.started)
		} else if failed, ok := errors.AsType[*cli.ExitError](err); ok {
			end = failed
		}
		rest, again := time.Duration(0), ctx.Err() == nil
		if again {
			rest, again = r.again(p, end, ran)
		}
		if !again {
			r.last = end
			r.fail(errEnded)
			return
		}
		if r.OnExit == OnExitRelease {
			b.leave()
		}
		_ = timeutil.Pause(ctx, rest)
	}
}

// beside is the part that is taken in the election beside a program.
type beside struct {
	*runner               // nil if no part is taken
	found   chan struct{} // closed when the bucket was found, or cannot be used
	cancel  context.CancelFunc
	done    chan struct{}
}

// standBeside stands in the election until that is left. It goes on when ctx has ended, for as long as the program winds
// up; what ends it before ends the run.
func (r *runner) standBeside(ctx context.Context) beside {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := beside{runner: r, found: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		s := r.reach(ctx)
		close(b.found)
		if s == nil {
			return
		}
		defer s.Conn.Close()
		for first := true; ctx.Err() == nil && r.once(ctx, s, first, r.inform); first = false {
			continue // what it gave up, because a lease was running out, it stands for again
		}
	}()
	return b
}

// leave leaves the election, and returns when the key is released if it was held.
func (b *beside) leave() {
	if b.runner != nil {
		b.cancel()
		<-b.done
		b.runner = nil
	}
}

// inform tells the program that it leads, and then that it does not. One that is started meanwhile is told too.
func (r *runner) inform(ctx context.Context, t election.Term, leave func()) {
	for ctx.Err() == nil {
		p := r.current.Load()
		if p == nil || p.over() {
			_ = timeutil.Pause(ctx, handlerEvery)
			continue
		}
		r.awaitHandlers(ctx, p)
		if ctx.Err() != nil || p.over() {
			continue
		}
		r.log.Info("Program notified that it leads", "signal", unix.SignalName(r.won), "term", t.Number)
		p.signal(r.won)
		r.awaitLoss(ctx, p, t)
		if p.over() {
			continue
		}
		r.log.Info("Program notified that it leads no longer", "signal", unix.SignalName(r.lost), "term", t.Number)
		p.signal(r.lost)
		r.tellOf(p, order{Group: p.pid})
		if ctx.Err() == nil { // the lease is running out: the program has its grace, then leadership is given up
			grace, _ := r.grants()
			_ = timeutil.Pause(ctx, grace)
			leave()
		}
		return
	}
}

// awaitHandlers waits until the program minds what it is to be told by, but not for long. It may just have been started,
// and would end by a signal that it is not ready for.
func (r *runner) awaitHandlers(ctx context.Context, p *program) {
	for late := time.Now().Add(handlerPatience); time.Now().Before(late) && ctx.Err() == nil && !p.over(); {
		if minds(p.pid, r.won) && minds(p.pid, r.lost) {
			return
		}
		_ = timeutil.Pause(ctx, handlerEvery)
	}
}

// awaitLoss returns when leadership has ended or the lease is running out, or when the program has ended. Should this
// process be stopped, the guardian tells the program; that leadership is lost then stands, whatever became of the lease.
func (r *runner) awaitLoss(ctx context.Context, p *program, t election.Term) {
	for ctx.Err() == nil && !p.over() {
		grace, death := r.grants()
		end := t.Deadline()
		until := left(end) - grace - death
		if until <= 0 {
			r.log.Warn("Lease is not renewed, it is running out", "left", terminal.Human(left(end)))
			return
		}
		if r.tellOf(p, orderAt(end.Add(-grace-death/2), order{Group: p.pid, Target: p.pid, Signal: r.lost})) {
			r.log.Warn("Leadership is given up: the guardian signalled its loss to the program while this process was stopped")
			return
		}
		timer := time.NewTimer(min(until, attendEvery))
		select {
		case <-ctx.Done():
		case <-p.ended:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tellOf gives the guardian an order about a program, unless nothing is left of that: its number may be somebody else's,
// and whoever attends to it has told the guardian, or is about to. It says what the guardian's own says.
func (r *runner) tellOf(p *program, o order) (late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone && r.guardian.tell(o)
}
