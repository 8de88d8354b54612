package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

// windUpDelay is for how long a run that stops leaves the server to its successor, before it unsubscribes.
const windUpDelay = 3 * time.Millisecond

// do is the run from its beginning to its return.
func (r *run) do(ctx context.Context) error {
	if err := r.metrics.register(); err != nil {
		return err
	}
	defer r.metrics.unregister()
	started := time.Now().UTC().Round(0)
	r.update(func(s *snapshot) { s.running, s.started, s.failure, s.unreadable = true, started, "", false })
	defer r.update(func(s *snapshot) { s.running = false })
	r.watchdog.busy("starting")
	defer r.watchdog.Store(nil)
	r.stateChanged(CandidateState, ReasonStarted, nil)
	defer r.stateChanged(UnknownState, ReasonStopped, nil)
	defer func() {
		r.watchdog.expect("waiting for callbacks to return", time.Now().Add(r.releaseTimeout()))
		<-r.calls.discard()
	}()

	if nc := r.bucket.Conn(); nc != nil {
		r.guard = natsconn.NewGuard(nc, !r.opts.noForce, r.log)
		defer r.guard.Leave()
	}
	described, err := r.waitForBucket(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if r.opts.health != nil {
		defer r.startHealthChecks(ctx)()
	}
	for {
		if err = r.campaignAs(ctx, described); !errors.Is(err, errCloned) {
			return err
		}
		r.rename()
	}
}

// rename has this candidate go on under another instance: another process uses the one that it had, and may go on with it.
func (r *run) rename() {
	before, renamed := r.instanceID(), record.NewID()
	r.log.Warn("Another process writes as this very candidate, going on as another instance", "instance", before, "renamed", renamed,
		"fix", "do not clone or resume twice a machine or process that runs a candidate; or start the candidates afterwards")
	r.renamed.Store(&renamed)
	r.doubt, r.secret = doubt{}, record.Secret{}
}

// campaignAs campaigns and leads as one instance, until ctx ends or another process is found to use that instance too.
func (r *run) campaignAs(ctx context.Context, described kv.Info) error {
	ctx, cancel := context.WithCancel(ctx)
	info, before := r.info(), r.listener
	r.listener = notify.Listen(r.bucket, described, notify.Config{
		Key: r.key, Name: r.name, Instance: r.instanceID(), Priority: r.opts.priority, Order: r.opts.order, TTL: info.TTL, Spread: info.Spread(),
		Wake: r.wake, Closed: func() { r.fail(nats.ErrConnectionClosed) }, Log: r.opts.Log(),
	})
	defer r.listener.Close()
	if before != nil {
		r.listener.Recall(before)
	}
	r.update(func(s *snapshot) { s.listener = r.listener })
	defer r.update(func(s *snapshot) { s.listener = nil })
	if r.bucket.Conn() != nil {
		r.member = control.Join(r.bucket, r.key, served{r}, r.opts.Log())
		defer r.member.Leave()
	}
	defer r.background.Wait()
	defer cancel()
	r.watchdog.busy("waiting for a source of notifications")
	defer r.watchdog.busy("stopping")
	defer func() { time.Sleep(time.Until(r.released.Add(windUpDelay))) }()
	return r.loop(ctx)
}

// loop campaigns and leads in turn.
func (r *run) loop(ctx context.Context) error {
	r.preempted = time.Now()
	r.timer = time.AfterFunc(0, func() { wakeup.Send(r.wake) })
	defer r.timer.Stop()
	due, lost := time.Now().Add(timeutil.Random(r.info().Splay)), 0
	r.listener.WaitReady(ctx, r.info().took)
	for ctx.Err() == nil {
		t, err := r.campaign(ctx, due, lost)
		if t == nil {
			if !errors.Is(err, errCloned) {
				r.withdraw()
			}
			return err
		}
		if finished, err := r.lead(ctx, t); finished {
			return err
		}
		if t.reason == ReasonCloned {
			return errCloned
		}
		switch {
		case ctx.Err() != nil:
			continue
		case !t.reason.voluntary() && r.info().read.Before(t.sent): // the bucket may have changed: the key may have expired early
			r.watchdog.busy("loading the bucket's info")
			r.checkBucket(ctx)
		}
		switch {
		case t.reason.yields():
			due, lost = time.Now().Add(t.Interval), 0
		default:
			due, lost = time.Now().Add(r.nextCampaign(1)), 1
		}
	}
	return nil
}

// releaseTimeout returns how long callbacks and work may take once they should return; 0 while the bucket was not reached, as there are
// none of a term then.
func (r *run) releaseTimeout() time.Duration {
	if info := r.info(); info != nil {
		return info.ReleaseTimeout
	}
	return 0
}

// waitForBucket loads the bucket's info, and waits while the server cannot be reached.
func (r *run) waitForBucket(ctx context.Context) (info kv.Info, err error) {
	err = r.bucket.WaitFor(ctx, r.log, func() (err error) {
		r.watchdog.busy("loading the bucket's info")
		if info, err = r.loadBucket(ctx); err == nil {
			known := r.info()
			r.log.Debug("Bucket loaded", "bucket", r.bucket.Bucket(), "ttl", known.TTL, "interval", known.Interval, "stand-down", known.StandDown)
		}
		return err
	})
	return info, err
}

// nextCampaign returns the time from one campaign to the next of a candidate that lost the given number in a row.
func (r *run) nextCampaign(lost int) (d time.Duration) {
	info := r.info()
	d = info.Interval
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("Backoff panicked, waiting one interval", "panic", p)
		}
		r.setWait(d)
	}()
	if r.opts.backoff != nil {
		r.watchdog.busy("asking its Backoff")
		d = min(max(r.opts.backoff.Duration(lost), settings.MinPause), info.TTL)
	}
	return d
}

// Why a candidate does not campaign.
const (
	holdPaused           = "paused"
	holdPausedByOperator = "paused by an operator"
	holdUnhealthy        = "unhealthy"
	holdBucketUnusable   = "bucket unusable" // it is gone or unfit, or its info could not be loaded when the key was won: this candidate could not keep it
)

// holds keep a candidate from campaigning, each for a reason of its own.
type holds struct {
	mu      sync.Mutex
	reasons map[string]bool
	wake    chan<- struct{} // receives at each change
}

// set places or removes the hold of one reason, and reports whether that changes it.
func (h *holds) set(reason string, on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reasons[reason] == on {
		return false
	}
	if h.reasons == nil {
		h.reasons = map[string]bool{}
	}
	if h.reasons[reason] = on; !on {
		delete(h.reasons, reason)
	}
	wakeup.Send(h.wake)
	return true
}

// has reports whether there is a hold for that reason.
func (h *holds) has(reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[reason]
}

// none reports whether there is no hold.
func (h *holds) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reasons) == 0
}
