package election

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/core"
)

// The loop is one goroutine. It asks the shell for the next operation, does it, see perform.go, and passes the result back; before each operation
// it reports what was decided, see report.go. Every other goroutine (a timer, the notifier, a user's call) tells the shell what has happened, see
// Election.beside, and the shell has the loop woken if the candidate now has something else to do. The election's mutex is held for each decision, and never while
// the loop does something.

// loop does what the candidate decides, one thing after the other, until nothing is left to do.
func (r *run) loop(began time.Time) (cloned bool) {
	op, events := r.begin(began)
	for {
		r.handle(events)
		switch op.Kind {
		case core.Finish:
			return op.Cloned
		case core.Wait:
			r.await(&op)
			op, events = r.next(core.Result{})
		default:
			op, events = r.step(&op)
		}
	}
}

// step does an operation and decides on the next one. It is not inlined, so that the frame of loop stays small: a process may have thousands of
// candidates, which mostly wait, each with a stack of its own.
//
//go:noinline
func (r *run) step(op *core.Op) (core.Op, []core.Event) { return r.next(r.perform(op)) }

// begin has the candidate begin to campaign, and returns its first operation.
func (r *run) begin(began time.Time) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	op, events := r.shell.Begin(now, began)
	r.decided(now, &op)
	r.goOn()
	return op, events
}

// next passes the result of the last operation to the candidate, and returns the next operation.
func (r *run) next(result core.Result) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	op, events := r.shell.Done(now, result)
	r.decided(now, &op)
	r.goOn()
	return op, events
}

// decided takes note of what the loop does next. The caller holds mu.
func (r *run) decided(now time.Time, op *core.Op) {
	r.decidedAt = now
	due := op.Due
	if op.Kind != core.Wait {
		due = now.Add(busyTime)
	}
	r.progress = progress{r.candidate.Doing(), due}
}

// handle reports what was decided, and does what it asks for.
func (r *run) handle(events []core.Event) {
	for i := range events {
		r.report(&events[i])
		r.take(&events[i])
	}
}

// take does what only events of the loop ask for, besides their report: what the shell takes becomes due, the schedule of WithRelinquish starts when
// leadership begins to count, and a leader of lower priority is asked to hand over.
func (r *run) take(e *core.Event) {
	switch e.Kind {
	case core.Campaigned, core.LeaderSeen, core.LeadershipCounts:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.shell.Take(time.Now(), e)
		if a := r.term.Load(); e.Kind == core.LeadershipCounts && r.opts.Schedule != nil && a != nil && a.Core == e.Term && a.leads() {
			r.background.Go(func() { r.relinquish(a.ctx, a, r.opts.Schedule) })
		}
	case core.Preempt:
		r.preempt(e.Instance, e.Name)
	}
}

// receiver is the notify.Receiver of a run, under one instance.
type receiver struct {
	*run
	rules *core.Rules // of that instance
}

// Receive passes a notice to the candidate, unless the run has ended, or goes on under another instance.
func (r receiver) Receive(n core.Notice) {
	r.beside(func(present *run, now time.Time) []core.Event {
		if present != r.run || r.own.Rules != r.rules {
			return nil
		}
		if _, changed := n.(*core.Notification); changed {
			r.changed.Broadcast()
		}
		return r.shell.Notice(now, n)
	})
}

// SourceOverdue reports whether the source of notifications has still not reported what the candidate misses.
func (r receiver) SourceOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.Rules == r.rules && r.own.SourceOverdue()
}

// Closed ends the run: the connection was closed for good.
func (r receiver) Closed() { r.fail(nats.ErrConnectionClosed) }
