package election

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/wakeup"
)

// Start and Run, and what they do from their beginning to their return; Stop and Shutdown, which end them.

// yieldTime is how long a run that stops waits after a release before it unsubscribes, so that the server serves the successor first.
const yieldTime = 3 * time.Millisecond

// Start campaigns, and leads whenever it wins, until ctx ends or [Election.Stop] is called. It blocks, and returns nil once callbacks have returned
// and the key is released if it was held. While the server cannot be reached it waits. It returns [ErrBucketUnsuitable] or [ErrInvalidOption] when
// the server can be reached and the bucket, or an option in this bucket, is wrong, [ErrAlreadyRunning], and [ErrStopped] after Stop. If the bucket is
// removed or becomes unfit later, Start logs a warning, says it in [Status].LastError, and waits until the bucket can be used again; if the TTL
// changes, it adapts. A connection that is closed for good ends leadership at once, and Start with an error that is nats.ErrConnectionClosed: at once
// where the connection is known, else at the next request. After its context ended Start may be called again.
func (e *Election) Start(ctx context.Context) error { return e.run(ctx, nil) }

// Run is [Election.Start] with work for the leader. It campaigns for ever and calls work once per term, when leadership counts, with a
// context that ends when leadership does, for whatever reason: context.Cause is a [*TermEndedError] then. Work should return soon after:
// meanwhile this candidate does not campaign, and if it stopped or resigned it keeps the key, for at most the release timeout.
//
// If work returns while it still leads, the key is released and Run returns work's error. A panic in work is returned as an error too.
// An error that is [ErrNotLeader], as fence.ErrFenced is, counts as a resignation instead: Run campaigns again, one interval later.
// Otherwise Run ignores work's error, and returns nil once ctx ended or Stop was called and work has returned, and the errors that
// Start does.
func (e *Election) Run(ctx context.Context, work func(ctx context.Context, t Term) error) error {
	if work == nil {
		return validate.Errorf("Run was given no work: pass a function, or call Start")
	}
	return e.run(ctx, work)
}

// run is what Start and Run do; work is nil for Start.
func (e *Election) run(parent context.Context, work func(context.Context, Term) error) error {
	r, err := e.enter(parent, work)
	if err != nil {
		return err
	}
	defer e.leave(r)
	if parent.Err() != nil {
		return nil
	}
	defer context.AfterFunc(parent, r.stop)()
	err = r.do()
	if failed := r.failed.Load(); failed != nil && err == nil {
		return *failed
	}
	if parent.Err() != nil && errors.Is(err, parent.Err()) {
		return nil // the work noticed the end of parent before the loop did
	}
	return err
}

// enter begins a run unless there is one, or Stop was called.
func (e *Election) enter(parent context.Context, work func(context.Context, Term) error) (*run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
		return nil, ErrStopped
	case e.current != nil:
		return nil, ErrAlreadyRunning
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the end of parent calls run.stop, which tells the candidate first
	r := &run{Election: e, work: work, ctx: ctx, cancel: cancel, again: e.ran}
	e.ran = true
	r.shell = newShell(r)
	e.current = r
	return r, nil
}

// leave ends a run, so that another one may begin.
func (e *Election) leave(r *run) {
	e.mu.Lock()
	r.cancel()
	e.current = nil
	e.mu.Unlock()
	e.detach()
	e.mu.Lock()
	defer e.mu.Unlock()
	r.returned.Close()
}

// Stop ends the election for good, and returns at once: leadership ends, callbacks and work return, the key is released if it was held,
// and then Start or Run returns. It may be called from anywhere, again, and before Start. [Election.Shutdown] also waits.
func (e *Election) Stop() {
	e.mu.Lock()
	e.stopped = true
	r := e.current
	e.mu.Unlock()
	e.detach()
	if r != nil {
		r.stop()
	}
}

// Shutdown is [Election.Stop], and waits until Start or Run has returned: a few milliseconds after a release. Callbacks or work that do
// not return can delay that without limit. If ctx ends before, Shutdown returns its error; the election goes on stopping.
func (e *Election) Shutdown(ctx context.Context) error {
	e.Stop()
	e.mu.Lock()
	r := e.current
	if r == nil {
		e.mu.Unlock()
		e.detach() // the run may have ended since Stop
		return nil
	}
	returned := r.returned.Wait()
	e.mu.Unlock()
	return wakeup.Wait(ctx, returned)
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

	if r.own == nil {
		return r.campaignBySession()
	}
	if nc := r.bucket.Conn(); nc != nil {
		r.guard = natsconn.NewGuard(nc, !r.opts.NoForce, r.log)
		defer r.guard.Leave()
	}
	source, err := r.waitForBucket()
	if err != nil || r.ctx.Err() != nil {
		return err
	}
	defer r.takePart()()
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

// takePart starts what a candidate has beside its loop, once the bucket is known: the function that it returns ends that.
func (r *run) takePart() (end func()) {
	r.mu.Lock()
	r.timer = time.AfterFunc(0, func() { wakeup.Send(r.wake) })
	r.mu.Unlock()
	endChecks := func() {}
	if r.opts.Health != nil {
		endChecks = r.startHealthChecks(r.ctx)
	}
	if r.bucket.Conn() != nil {
		r.member = control.Join(r.bucket, r.key, served{r}, r.opts.Log())
	}
	return func() {
		if r.member != nil {
			r.member.Leave()
		}
		endChecks()
		r.timer.Stop()
	}
}

// beginRun begins the run.
func (r *run) beginRun(started time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.failure = true, ""
	r.progress = progress{"starting", time.Now().Add(busyTime)}
	r.shell.Start(time.Now(), r.rules(r.instanceID()), started)
	r.goOn()
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
	r.goOn()
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
	if r.again && r.opts.SplayOnce {
		began = began.Add(-r.status().Bucket.Splay) // so the splay is over
	}
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
	until := r.own.ReleasedAt().Add(yieldTime)
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
