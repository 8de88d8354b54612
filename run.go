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

const (
	// busyTime is how long the loop may be busy before it reports progress again: with a request, which ends sooner, or with a function of
	// the user's that should.
	busyTime = 4 * timing.RequestTimeout
	// stuckAfter is by how much the loop may be late to report progress before it counts as stuck, on a host that is short of time.
	stuckAfter = 4 * timing.RequestTimeout
	// overdueAfter is for how long a lease may be over before the loop must have stood down: its requests end with the lease.
	overdueAfter = timing.RequestTimeout
	// windUpDelay is for how long a run that stops leaves the server to its successor, before it unsubscribes.
	windUpDelay = 3 * time.Millisecond
)

// run is one call of Start or Run, from its beginning to its return. What the candidate decides is decided by package core; run does it: it makes
// the requests, one after the other, waits, and reports. It owns what lives as long as it does.
type run struct {
	*Election
	work   func(context.Context, Term) error // nil for Start
	calls  *dispatcher
	ctx    context.Context // ends when the run is to end
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why the run must end though nobody stopped it

	member     *control.Member // nil where the connection is not known
	guard      *natsconn.Guard // nil where the connection is not known
	background sync.WaitGroup  // what a term or a campaign began beside the loop
	timer      *time.Timer     // wakes the loop
	beside     context.Context // ends before what goes on beside the loop is waited for; nil if nothing needs it
	endBeside  context.CancelFunc
	decided    time.Time // when the operation was decided that it does; belongs to the loop
	present    *work     // that has not returned yet; belongs to the loop
	result     error     // of the work that returned while it led

	// The election's mutex guards what follows.
	listener *notify.Listener
	returned wakeup.Latch  // closed when it has returned
	stopping bool          // it is to end
	wakeAt   time.Time     // when the timer wakes the loop; zero if it does not
	changed  wakeup.Signal // at each notification
}

// do is the run from its beginning to its return.
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
	for r.campaignAs(reports) {
		r.rename()
		if reports, err = r.waitForBucket(); err != nil || r.ctx.Err() != nil { // which may have been made again since
			return err
		}
	}
	return r.result
}

// beginRun has the candidate forget what it knew in an earlier run, but for what lasts: see core.NewRun.
func (r *run) beginRun(started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = true, ""
	r.progress = progress{"starting", time.Now().Add(busyTime)}
	r.candidate.Notice(time.Now(), core.NewRun{Rules: r.rules(), Started: started})
	if r.stopping { // by a Stop that came first
		r.candidate.Notice(time.Now(), core.Stop{})
	}
}

func (r *run) endRun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.progress = false, progress{}
	r.candidate.Notice(time.Now(), core.EndRun{})
}

// rename has this candidate go on under another instance: another process uses the one that it had, and may go on with it.
func (r *run) rename() {
	before, renamed := r.instanceID(), record.NewID()
	r.log.Warn("Another process writes as this very candidate, going on as another instance", "instance", before, "renamed", renamed,
		"fix", "do not clone or resume twice a machine or process that runs a candidate; or start the candidates afterwards")
	r.renamed.Store(&renamed)
	r.tell(core.NewRules{Rules: r.rules()})
}

// campaignAs campaigns and leads as one instance, until the run is to end. It returns true if another process was found to use that instance, too.
func (r *run) campaignAs(reports notify.Source) (cloned bool) {
	listener := notify.Listen(r.bucket, reports, r.key, r.name, r.instanceID(), receiver{r, r.coreRules()}, r.opts.Log())
	defer listener.Close()
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	if r.bucket.Conn() != nil {
		r.member = control.Join(r.bucket, r.key, served{r}, r.opts.Log())
		defer r.member.Leave()
	}
	defer r.endBackground()
	began := time.Now()
	r.expect("waiting for a source of notifications", began.Add(busyTime))
	defer func() { r.expect("stopping", time.Now().Add(busyTime)) }()
	defer r.leaveToSuccessor()
	listener.WaitReady(r.ctx, r.status().Bucket.Took)
	return r.loop(began)
}

// endBackground waits until nothing goes on beside the loop.
func (r *run) endBackground() {
	if r.beside != nil {
		r.endBeside()
	}
	r.background.Wait()
}

// leaveToSuccessor waits a moment after a release, so that the server serves the successor first.
func (r *run) leaveToSuccessor() {
	r.mu.Lock()
	until := r.candidate.ReleasedAt().Add(windUpDelay)
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

// step does an operation and decides on the next. It is not a part of the loop's frame: candidates mostly wait, and thousands of them have a stack each.
//
//go:noinline
func (r *run) step(op *core.Op) (core.Op, []core.Event) { return r.next(r.perform(op)) }

// waited decides on the next operation after a wait, as step does.
//
//go:noinline
func (r *run) waited(quiet bool) (core.Op, []core.Event) { return r.next(core.Result{Quiet: quiet}) }

// begin begins to campaign.
func (r *run) begin(began time.Time) (core.Op, []core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.candidate.Begin(now, began)
	return r.decide(now)
}

// next passes on what came of the last operation, and returns the next one.
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
	r.decided = now
	r.publish(now)
	due := op.Due
	if op.Kind != core.Wait {
		due = now.Add(busyTime)
	}
	r.progress = progress{op.Doing, due}
	if op.Kind == core.Wait {
		r.setTimer(now, op.Until)
	}
	return op, events
}

// setTimer has the loop woken at the given time, and not before; never if that is zero. The caller holds mu.
func (r *run) setTimer(now, at time.Time) {
	if r.wakeAt = at; at.IsZero() {
		r.timer.Stop()
		return
	}
	r.timer.Reset(at.Sub(now))
}

// tell tells the candidate what happened while the loop does something else, and has the loop woken when there is something else to do.
func (e *Election) tell(n core.Notice) {
	e.mu.Lock()
	now, r := time.Now(), e.current
	events := e.candidate.Notice(now, n)
	e.noticed(now)
	e.mu.Unlock()
	if len(events) > 0 && r != nil {
		r.report(events)
	}
}

// noticed shows what was decided on account of a notice. The caller holds mu.
func (e *Election) noticed(now time.Time) {
	e.publish(now)
	r := e.current
	if r == nil || r.timer == nil {
		return
	}
	op, waits := e.candidate.Waits(now)
	if !waits {
		return
	}
	e.progress = progress{op.Doing, op.Due}
	switch at := op.Until; {
	case at.IsZero():
	case !at.After(now):
		wakeup.Send(e.wake)
	case r.wakeAt.IsZero() || at.Before(r.wakeAt):
		r.setTimer(now, at)
	}
}

// publish shows others what was decided about the term. The caller holds mu.
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

// receiver is what the notifier needs of a run, as one instance.
type receiver struct {
	*run
	rules *core.Rules // by which the candidate goes meanwhile
}

// Receive passes a notice on, unless it comes after the end of the run, or of the instance.
func (r receiver) Receive(n core.Notice) {
	r.mu.Lock()
	if r.current != r.run || r.candidate.Rules != r.rules {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	events := r.candidate.Notice(now, n)
	r.noticed(now)
	if _, changed := n.(*core.Notification); changed {
		r.changed.Broadcast()
	}
	r.mu.Unlock()
	r.report(events)
}

func (r receiver) SourceOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.candidate.Rules == r.rules && r.candidate.SourceOverdue()
}

// notifications returns the run's part in the notifications of its bucket.
func (r *run) notifications() *notify.Listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listener
}

// coreRules returns the rules by which the candidate goes now.
func (r *run) coreRules() *core.Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.candidate.Rules
}

func (r receiver) Closed() { r.fail(nats.ErrConnectionClosed) }

// nextChange returns a channel that is closed at the next notification.
func (r *run) nextChange() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed.Wait()
}

// stop has the run end. What ends with the run ends after the candidate has learned of it, so that it does not campaign again for what it
// releases.
func (r *run) stop() {
	r.mu.Lock()
	if r.current == r { // else it has ended meanwhile
		now := time.Now()
		r.stopping = true
		r.candidate.Notice(now, core.Stop{})
		r.noticed(now)
	}
	r.mu.Unlock()
	r.cancel()
}

// tellLoaded tells the candidate what the server says of the bucket. A connection that is closed for good ends the run.
func (r *run) tellLoaded(loaded core.Loaded) {
	r.tell(loaded)
	if isClosedForGood(loaded.Err) {
		r.fail(nats.ErrConnectionClosed)
	}
}

// releaseTimeout returns how long callbacks and work may take once they should return; 0 while the bucket was not reached, as there are
// none of a term then.
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

// fail ends the run, and a term at once, for a reason that no waiting mends.
func (r *run) fail(err error) {
	err = fmt.Errorf("election %q of %q cannot go on, make a new one on a new connection: %w", r.key, r.name, err)
	if !r.failed.CompareAndSwap(nil, &err) {
		return
	}
	log := r.log.Error
	if r.ctx.Err() != nil { // it stops anyway, as after the release of a lock
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

// progress is what the loop does, and when it means to be done: so a loop that sleeps until its next campaign, perhaps for hours, is distinguished
// from one that is stuck.
type progress struct {
	doing string    // "" if it does not run
	due   time.Time // zero if the loop waits for somebody else
}

// expect is called when the run begins to do something that takes until due.
func (r *run) expect(doing string, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = progress{doing, due}
}

// isClosedForGood reports whether an error says that the connection is closed for good.
func isClosedForGood(err error) bool { return errors.Is(err, nats.ErrConnectionClosed) }
