package election

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/wakeup"
)

// The loop of a run, and how what happens beside it reaches the candidate.
//
// The loop is one goroutine. It asks the shell for the next operation, does it, see perform.go, and passes the result back; before each operation
// it reports what was decided, see report.go. Every other goroutine (a timer, the notifier, a user's call) tells the shell what has happened, see
// beside, and the shell has the loop woken if the candidate now has something else to do. The election's mutex is held for each decision, and never while
// the loop does something.

// loop does what the candidate decides, one thing after the other, until nothing is left to do.
func (r *run) loop(began time.Time) (cloned bool) {
	op, events := r.begin(began)
	for {
		r.report(events)
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
	return op, events
}

// next passes the result of the last operation to the candidate, and returns the next operation.
func (r *run) next(result core.Result) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	op, events := r.shell.Done(now, result)
	r.decided(now, &op)
	return op, events
}

// decided takes note of what the loop does next. The caller holds mu.
func (r *run) decided(now time.Time, op *core.Op) {
	r.decidedAt = now
	due := op.Due
	if op.Kind != core.Wait {
		due = now.Add(busyTime)
	}
	r.progress = progress{r.candidate.Step().String(), due}
}

// beside has something decided beside the loop, and reports what there is to report. r is the present run; nil if there is none.
func (e *Election) beside(decide func(r *run, now time.Time) []core.Event) {
	e.mu.Lock()
	r := e.current
	events := decide(r, time.Now())
	if op, waits := e.candidate.Waits(); waits && r != nil && r.timer != nil { // it may wait for something else now
		e.progress = progress{e.candidate.Step().String(), op.Due}
	}
	e.mu.Unlock()
	if r != nil {
		r.report(events)
	}
}

// tell passes a notice to the candidate.
func (e *Election) tell(n core.Notice) {
	e.beside(func(r *run, now time.Time) []core.Event {
		if r == nil { // there is nothing to publish, to wake or to report
			e.candidate.Notice(now, n)
			return nil
		}
		return r.shell.Notice(now, n)
	})
}

// driver does what the shell of a run says. The election's mutex is held meanwhile.
type driver struct{ *run }

// NewTerm returns a term that begins.
func (d driver) NewTerm(t *core.Term) *shell.Term {
	d.latest = newActiveTerm(d.run, t)
	return &d.latest.Term
}

// Show has others see a term from now on, or none. A witness is told of both.
func (d driver) Show(t *shell.Term) {
	if before := d.term.Load(); before != nil {
		d.tellWitnessOver(before)
	}
	if t != nil {
		d.tellWitnessBegan(t.Core)
		d.term.Store(d.latest)
		return
	}
	d.term.Store(nil)
	if d.leader != nil && d.leader.Instance == d.instanceID() {
		d.leader = nil
	}
}

// StartCalls starts the goroutine that calls callbacks.
func (d driver) StartCalls() { go d.callCallbacks() }

// Wake has the loop woken at a time.
func (d driver) Wake(at time.Time) {
	left := time.Until(at)
	switch {
	case d.timer == nil, !at.IsZero() && left <= 0:
		wakeup.Send(d.wake)
	case at.IsZero():
		d.timer.Stop()
	default:
		d.timer.Reset(left)
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
		if present != r.run || r.candidate.Rules != r.rules {
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
	return r.candidate.Rules == r.rules && r.candidate.SourceOverdue()
}

// Closed ends the run: the connection was closed for good.
func (r receiver) Closed() { r.fail(nats.ErrConnectionClosed) }
