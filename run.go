package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/wakeup"
)

// yieldTime is how long a run that stops waits after a release before it unsubscribes, so that the server serves the successor first.
const yieldTime = 3 * time.Millisecond

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

// do runs from the beginning to the return. What is begun here is ended in the opposite order, by the deferred calls: the callbacks return before
// the state is reported as unknown.
func (r *run) do() error {
	if err := r.metrics.register(); err != nil {
		return err
	}
	defer r.metrics.unregister()
	r.beginRun(time.Now().UTC().Round(0))
	defer r.endRun()
	r.stateChanged(CandidateState, ReasonStarted, nil)
	defer r.stateChanged(UnknownState, ReasonStopped, nil)
	defer func() {
		r.expect("waiting for callbacks to return", time.Now().Add(r.releaseTimeout()))
		for !r.discardCalls() {
			<-r.wake
		}
	}()

	if nc := r.bucket.Conn(); nc != nil {
		r.guard = natsconn.NewGuard(nc, !r.opts.NoForce, r.log)
		defer r.guard.Leave()
	}
	source, err := r.waitForBucket()
	if err != nil || r.ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	r.timer = time.AfterFunc(0, func() { wakeup.Send(r.wake) })
	r.mu.Unlock()
	defer r.timer.Stop()
	if r.opts.Health != nil {
		defer r.startHealthChecks(r.ctx)()
	}
	if r.bucket.Conn() != nil {
		r.member = control.Join(r.bucket, r.key, served{r}, r.opts.Log())
		defer r.member.Leave()
	}
	for r.campaignAs(source) {
		r.rename()
		again, err := r.waitForBucket() // which may have been made again meanwhile
		switch {
		case r.ctx.Err() != nil:
			return err
		case err == nil:
			source = again
		case !errors.Is(err, ErrBucketUnsuitable): // otherwise the candidate waits until the bucket can be used again
			return err
		}
	}
	return r.result()
}

// beginRun begins the run.
func (r *run) beginRun(started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = true, ""
	r.progress = progress{"starting", time.Now().Add(busyTime)}
	r.shell.Start(time.Now(), r.rules(r.instanceID()), started)
}

// result returns what the work returned that returned while it led.
func (r *run) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shell.Result()
}

func (r *run) endRun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.progress = false, progress{}
	r.shell.Return(time.Now())
}

// rename has this candidate go on under a new instance, because another process uses its present one.
func (r *run) rename() {
	before, renamed := r.instanceID(), record.NewID()
	r.log.Warn("Another process writes as this very candidate, going on as another instance", "instance", before, "renamed", renamed,
		"fix", "do not clone or resume twice a machine or process that runs a candidate; or start the candidates afterwards")
	r.renamed.Store(&renamed)
	r.beside(func(_ *run, now time.Time) []core.Event { return r.shell.Rename(now, r.rules(r.instanceID())) })
}

// campaignAs campaigns and leads as one instance, until the run is to end or another process is found to use that instance too; then cloned is true.
func (r *run) campaignAs(source notify.Source) (cloned bool) {
	listener := notify.Listen(r.bucket, source, r.key, r.name, r.instanceID(), receiver{r, r.coreRules()}, r.opts.Log())
	defer listener.Close()
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	defer r.endBackground()
	began := time.Now()
	r.expect("waiting for a source of notifications", began.Add(busyTime))
	defer func() { r.expect("stopping", time.Now().Add(busyTime)) }()
	defer r.yieldToSuccessor()
	listener.WaitReady(r.ctx, r.took())
	return r.loop(began)
}

// endBackground waits until nothing runs beside the loop.
func (r *run) endBackground() {
	if r.backgroundCtx != nil {
		r.cancelBackground()
	}
	r.background.Wait()
}

// yieldToSuccessor waits for a moment if a release has just named a successor: see yieldTime.
func (r *run) yieldToSuccessor() {
	r.mu.Lock()
	until := r.candidate.ReleasedAt().Add(yieldTime)
	r.mu.Unlock()
	time.Sleep(time.Until(until))
}

// releaseTimeout returns how long callbacks and work may take to return; 0 until the bucket was reached, because no term has begun before.
func (r *run) releaseTimeout() time.Duration { return r.status().Bucket.ReleaseTimeout }

// waitForBucket loads the bucket's info, and waits while the server cannot be reached.
func (r *run) waitForBucket() (source notify.Source, err error) {
	err = r.bucket.WaitFor(r.ctx, r.log, func() error {
		r.expect("loading the bucket's info", time.Now().Add(busyTime))
		loaded, info := r.load(r.ctx)
		if loaded.Err == nil {
			source = notify.Source{Subject: info.Republish, Created: info.Created}
			r.log.Debug("Bucket loaded", "bucket", r.bucket.Bucket(), "ttl", loaded.Bucket.TTL, "interval", loaded.Bucket.Interval, "stand-down", loaded.Bucket.StandDown)
		}
		r.tellLoaded(loaded)
		return loaded.Err
	})
	return source, err
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
	return r.candidate.Rules
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
	return r.candidate.Took()
}

// suspectConnection has the connection examined, because an answer or a notification has not come in time.
func (r *run) suspectConnection() { r.guard.Suspect(r.took()) }
