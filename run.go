package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/wakeup"
)

// The shell of a candidate: the loop, and how what happens meanwhile reaches package core.
//
// The loop is one goroutine. It asks the candidate for the next operation, does it, see perform.go, and passes the result back; before each operation
// it reports what was decided, see report.go. Every other goroutine (a timer, the notifier, a user's call) passes a core.Notice to the candidate, by
// notice, tell or Receive, which wake the loop if the candidate now has something else to do. The election's mutex is held for each decision, and
// never while the loop does something.

const (
	// busyTime is how long the loop may take until it reports progress again. A request ends sooner, and so should a function of the user's.
	busyTime = 4 * timing.RequestTimeout
	// stuckAfter is how late the loop may report progress before it counts as stuck: a host may be short of processor time.
	stuckAfter = 4 * timing.RequestTimeout
	// overdueAfter is how long after the end of a lease the loop must have stood down: its requests end with the lease.
	overdueAfter = timing.RequestTimeout
	// yieldTime is how long a run that stops waits after a release before it unsubscribes, so that the server serves the successor first.
	yieldTime = 3 * time.Millisecond
)

// run is one call of Start or Run, from its beginning to its return. Package core decides; run makes the requests, one after the other, waits, and
// reports. It owns what lives as long as the call.
type run struct {
	*Election
	work   func(context.Context, Term) error // nil for Start
	calls  *dispatcher
	ctx    context.Context // ends when the run is to end
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why the run must end although nobody stopped it

	member *control.Member // nil if the connection is not known; set before the first campaign, and read by goroutines of callers
	guard  *natsconn.Guard // nil if the connection is not known
	timer  *time.Timer     // wakes the loop

	// Goroutines that a term or a campaign has started beside the loop.
	background       sync.WaitGroup
	backgroundCtx    context.Context // ends before they are waited for; nil until one needs it
	cancelBackground context.CancelFunc

	// What follows belongs to the loop.
	decidedAt   time.Time // when the present operation was decided
	quietWait   quietWait // the present wait for callbacks and work to return
	currentWork *work     // that has not returned yet; nil if there is none
	result      error     // of the work that returned while it led

	// The election's mutex guards what follows.
	listener *notify.Listener
	returned wakeup.Latch  // closed when the run has returned
	stopping bool          // the run is to end
	wakeAt   time.Time     // when the timer wakes the loop; zero if it does not
	changed  wakeup.Signal // broadcast at each notification
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
		<-r.calls.discard()
	}()

	if nc := r.bucket.Conn(); nc != nil {
		r.guard = natsconn.NewGuard(nc, !r.opts.NoForce, r.log)
		defer r.guard.Leave()
	}
	reports, err := r.waitForBucket()
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
	for r.campaignAs(reports) {
		r.rename()
		if reports, err = r.waitForBucket(); err != nil || r.ctx.Err() != nil { // the bucket may have been made again meanwhile
			return err
		}
	}
	return r.result
}

// beginRun has the candidate forget what it knew in an earlier run, except for what outlives a run: see core.NewRun.
func (r *run) beginRun(started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = true, ""
	r.progress = progress{"starting", time.Now().Add(busyTime)}
	r.candidate.Notice(time.Now(), core.NewRun{Rules: r.rules(), Started: started})
	if r.stopping { // Stop came first
		r.candidate.Notice(time.Now(), core.Stop{})
	}
}

func (r *run) endRun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.progress = false, progress{}
	r.candidate.Notice(time.Now(), core.EndRun{})
}

// rename has this candidate go on under a new instance, because another process uses its present one.
func (r *run) rename() {
	before, renamed := r.instanceID(), record.NewID()
	r.log.Warn("Another process writes as this very candidate, going on as another instance", "instance", before, "renamed", renamed,
		"fix", "do not clone or resume twice a machine or process that runs a candidate; or start the candidates afterwards")
	r.renamed.Store(&renamed)
	r.tell(core.NewRules{Rules: r.rules()})
}

// campaignAs campaigns and leads as one instance, until the run is to end or another process is found to use that instance too; then cloned is true.
func (r *run) campaignAs(reports notify.Source) (cloned bool) {
	listener := notify.Listen(r.bucket, reports, r.key, r.name, r.instanceID(), receiver{r, r.coreRules()}, r.opts.Log())
	defer listener.Close()
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	defer r.endBackground()
	began := time.Now()
	r.expect("waiting for a source of notifications", began.Add(busyTime))
	defer func() { r.expect("stopping", time.Now().Add(busyTime)) }()
	defer r.yieldToSuccessor()
	listener.WaitReady(r.ctx, r.status().Bucket.Took)
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

// loop does what the candidate decides, one thing after the other, until nothing is left to do.
func (r *run) loop(began time.Time) (cloned bool) {
	op, events := r.begin(began)
	for {
		r.report(events)
		switch op.Kind {
		case core.Finish:
			return op.Cloned
		case core.Wait:
			op, events = r.waited(r.await(&op))
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

// waited decides on the next operation after a wait, as step does.
//
//go:noinline
func (r *run) waited(quiet bool) (core.Op, []core.Event) { return r.next(core.Result{Quiet: quiet}) }

// begin has the candidate begin to campaign, and returns its first operation.
func (r *run) begin(began time.Time) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.candidate.Begin(now, began)
	return r.decide(now)
}

// next passes the result of the last operation to the candidate, and returns the next operation.
func (r *run) next(result core.Result) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.candidate.Done(now, result)
	return r.decide(now)
}

// decide returns what to do next, and what to report before. The caller holds mu.
func (r *run) decide(now time.Time) (core.Op, []core.Event) {
	op, events := r.candidate.Next(now)
	r.decidedAt = now
	r.publish(now)
	due := op.Due
	if op.Kind != core.Wait {
		due = now.Add(busyTime)
	}
	r.progress = progress{r.candidate.Step().String(), due}
	if op.Kind == core.Wait {
		r.setTimer(now, op.Until)
	}
	return op, events
}

// setTimer has the timer wake the loop at the given time; never if that is zero. The caller holds mu.
func (r *run) setTimer(now, at time.Time) {
	if r.wakeAt = at; at.IsZero() {
		r.timer.Stop()
		return
	}
	r.timer.Reset(at.Sub(now))
}

// tell passes a notice to the candidate, and reports what the candidate has to report.
func (e *Election) tell(n core.Notice) {
	e.mu.Lock()
	r := e.current
	events := e.notice(time.Now(), n)
	e.mu.Unlock()
	if len(events) > 0 && r != nil {
		r.report(events)
	}
}

// notice passes a notice to the candidate, publishes what the candidate has decided, and wakes the loop if it now has something else to do. The
// caller holds mu, and reports the events once it does not.
func (e *Election) notice(now time.Time, n core.Notice) []core.Event {
	events := e.candidate.Notice(now, n)
	e.noticed(now)
	return events
}

// noticed publishes what the candidate has decided outside of the loop, and wakes the loop in time. The caller holds mu.
func (e *Election) noticed(now time.Time) {
	e.publish(now)
	r := e.current
	if r == nil || r.timer == nil {
		return
	}
	op, waits := e.candidate.Waits()
	if !waits {
		return
	}
	e.progress = progress{e.candidate.Step().String(), op.Due}
	switch at := op.Until; {
	case at.IsZero():
	case !at.After(now):
		wakeup.Send(e.wake)
	case r.wakeAt.IsZero() || at.Before(r.wakeAt):
		r.setTimer(now, at)
	}
}

// publish has others see what was decided about the term: it replaces the activeTerm when a term begins or is over, and updates its lease. The caller
// holds mu.
func (e *Election) publish(now time.Time) {
	if a := e.term.Load(); a != nil {
		a.follow(now)
	}
	switch t, a := e.candidate.Term(), e.term.Load(); {
	case t == nil && a != nil:
		a.expiry.Stop()
		e.term.Store(nil)
		e.recall(a)
		if e.leader != nil && e.leader.Instance == e.instanceID() {
			e.leader = nil
		}
	case t != nil && (a == nil || a.term != t):
		if a != nil {
			e.recall(a)
		}
		a = newActiveTerm(e.current, t)
		e.entrust(t)
		a.follow(now)
		e.latest = a
		e.term.Store(a)
	}
}

// receiver is the notify.Receiver of a run, under one instance.
type receiver struct {
	*run
	rules *core.Rules // of that instance
}

// Receive passes a notice to the candidate, unless the run has ended, or goes on under another instance.
func (r receiver) Receive(n core.Notice) {
	r.mu.Lock()
	if r.current != r.run || r.candidate.Rules != r.rules {
		r.mu.Unlock()
		return
	}
	events := r.notice(time.Now(), n)
	if _, changed := n.(*core.Notification); changed {
		r.changed.Broadcast()
	}
	r.mu.Unlock()
	r.report(events)
}

// SourceOverdue reports whether the source of notifications has still not reported what the candidate misses.
func (r receiver) SourceOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.candidate.Rules == r.rules && r.candidate.SourceOverdue()
}

// Closed ends the run: the connection was closed for good.
func (r receiver) Closed() { r.fail(nats.ErrConnectionClosed) }

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

// stop has the run end. The candidate learns of it before the context ends, so that it does not campaign again for the key that it releases.
func (r *run) stop() {
	var events []core.Event
	r.mu.Lock()
	if r.current == r { // otherwise the run has ended meanwhile
		r.stopping = true
		events = r.notice(time.Now(), core.Stop{})
	}
	r.mu.Unlock()
	r.report(events)
	r.cancel()
}

// tellLoaded tells the candidate what the server says about the bucket. A connection that is closed for good ends the run.
func (r *run) tellLoaded(loaded core.Loaded) {
	r.noteLoaded(&loaded)
	r.tell(loaded)
	if isClosedForGood(loaded.Err) {
		r.fail(nats.ErrConnectionClosed)
	}
}

// releaseTimeout returns how long callbacks and work may take to return; 0 until the bucket was reached, because no term has begun before.
func (r *run) releaseTimeout() time.Duration { return r.status().Bucket.ReleaseTimeout }

// waitForBucket loads the bucket's info, and waits while the server cannot be reached.
func (r *run) waitForBucket() (reports notify.Source, err error) {
	err = r.bucket.WaitFor(r.ctx, r.log, func() error {
		r.expect("loading the bucket's info", time.Now().Add(busyTime))
		loaded, info := r.load(r.ctx)
		if loaded.Err == nil {
			reports = notify.Source{Subject: info.Republish, Created: info.Created}
			r.log.Debug("Bucket loaded", "bucket", r.bucket.Bucket(), "ttl", loaded.Bucket.TTL, "interval", loaded.Bucket.Interval, "stand-down", loaded.Bucket.StandDown)
		}
		r.tellLoaded(loaded)
		return loaded.Err
	})
	return reports, err
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
		t.end(core.Closed)
	}
	r.mu.Lock()
	r.failure = err.Error()
	r.mu.Unlock()
	r.stop()
}

// progress is what the loop does, and by when it should be done. It tells a loop that sleeps until its next campaign, perhaps for hours, from a loop
// that is stuck.
type progress struct {
	doing string    // "" if nothing runs
	due   time.Time // zero if the loop waits for somebody else, who may take any time
}

// expect is called when the run begins to do something that should be done by due.
func (r *run) expect(doing string, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = progress{doing, due}
}

// isClosedForGood reports whether an error says that the connection is closed for good.
func isClosedForGood(err error) bool { return errors.Is(err, nats.ErrConnectionClosed) }
