package election

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/wakeup"
)

// run is one call of Start or Run, from its beginning to its return. It owns what lives as long as the call. Package core decides, package shell says what
// follows, and run does it: it drives both.
//
// The goroutines of a run:
//
//	the caller of Start or Run   the loop: one wait or request after the other, and the reports before each
//	timers                       wake the loop; end leadership at the deadline (termDriver.expire); examine the connection if a renewal is late
//	callCallbacks                calls callbacks, while some are due
//	doWork                       the work of a term
//	runHealthChecks              and one for each check
//	background                   WithRelinquish, and requests to leaders of lower priority
//	context.AfterFunc            stops the run at the end of the caller's context
//	from outside                 callers of methods, the notifier, the control service: they go through beside
//
// A leader that is stopped ends in this order: IsLeader is false and the context of the work ends, in one step with the decision (Shell.Stop); callbacks and
// work return, while the loop renews; the loop releases the key, returns, and leaves the
// server to the successor for a moment; what runs beside it ends, and the notifications; then the control service, the health checks and the
// callbacks that still run; the state is unknown; Start or Run returns.
type run struct {
	*Election
	work   func(context.Context, Term) error // nil for Start
	ctx    context.Context                   // ends when the run is to end
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why the run must end although nobody stopped it
	again  bool                  // the election ran before

	member *control.Member // nil if the connection is not known; set before the first campaign, and read by goroutines of callers
	guard  *natsconn.Guard // nil if the connection is not known

	// Goroutines that a term or a campaign has started beside the loop.
	background       sync.WaitGroup
	backgroundCtx    context.Context // ends before they are waited for; nil until one needs it
	cancelBackground context.CancelFunc

	// What follows belongs to the loop.
	decidedAt time.Time // when the present operation was decided
	quietWait quietWait // the present wait for callbacks and work to return

	// The election's mutex guards what follows.
	shell     *shell.Shell
	latest    *activeTerm // the term that was won last; nil before the first
	timer     *time.Timer // wakes the loop; nil before
	listener  *notify.Listener
	callbacks []func()      // those of the present call that are left to call
	returned  wakeup.Latch  // closed when the run has returned
	changed   wakeup.Signal // broadcast at each notification
}

// quietWait is a wait for callbacks and work to return, which renewals interrupt.
type quietWait struct {
	due  time.Time        // the end of the wait
	slow <-chan time.Time // delivers once when the wait is worth a line of the log
}

// beside has something decided beside the loop, and reports what there is to report. r is the present run; nil if there is none.
func (e *Election) beside(decide func(r *run, now time.Time) []core.Event) {
	e.mu.Lock()
	r := e.current
	events := decide(r, time.Now())
	if op, waits := e.candidate.Waits(); waits && r != nil && r.timer != nil { // it may wait for something else now
		e.progress = progress{e.candidate.Doing(), op.Due}
	}
	e.goOn()
	e.mu.Unlock()
	for i := range events {
		r.report(&events[i])
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

// end ends the leadership of a term of this run, and reports whether it was this call that did.
func (r *run) end(t *activeTerm, why core.Reason) (first bool) {
	r.beside(func(_ *run, now time.Time) (events []core.Event) {
		first, events = r.shell.End(now, &t.Term, why)
		return events
	})
	return first
}

// stop has the run end. The candidate learns of it before the context ends, so that it does not campaign again for the key that it releases.
func (r *run) stop() {
	r.beside(func(present *run, now time.Time) []core.Event {
		if present != r { // the run has ended meanwhile
			return nil
		}
		return r.shell.Stop(now)
	})
	r.cancel()
}

// fail ends the run, and its term at once, because no waiting helps.
func (r *run) fail(err error) {
	err = fmt.Errorf("election %q of %q cannot go on, make a new one on a new connection: %w", r.key, r.name, err)
	if !r.failed.CompareAndSwap(nil, &err) {
		return
	}
	log := r.log.Error
	if r.ctx.Err() != nil { // the run stops anyway, as after the release of a lock
		log = r.log.Debug
	}
	log("Connection closed, stopping", "error", err)
	if t := r.term.Load(); t != nil {
		r.end(t, core.Closed)
	}
	r.mu.Lock()
	r.failure = err.Error()
	r.mu.Unlock()
	r.stop()
}

// expect is called when the run begins to do something that should be done by due.
func (r *run) expect(doing string, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = progress{doing, due}
}

// coreRules returns the candidate's present rules.
func (r *run) coreRules() *core.Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.Rules
}

// notifications returns the run's listener.
func (r *run) notifications() *notify.Listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listener
}

// nextChange returns a channel that is closed at the next notification.
func (r *run) nextChange() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed.Wait()
}

// took returns how long the server took for its last answer about the bucket.
func (r *run) took() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.candidate.Status().Bucket.Took
}

// suspectConnection has the connection examined, because an answer or a notification has not come in time.
func (r *run) suspectConnection() { r.guard.Suspect(r.took()) }
