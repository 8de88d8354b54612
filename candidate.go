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
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

// run is one call of Start or Run, from its beginning to its return. It owns what lives as long as it does. Its loop alternates between
// campaign and lead; the program counter says which it is.
type run struct {
	*Election
	work   func(context.Context, Term) error // nil for Start
	calls  *dispatcher
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why the run must end though nobody stopped it
	done   chan struct{}         // closed when it has returned

	listener    *notify.Listener
	member      *control.Member // nil where the connection is not known
	background  sync.WaitGroup  // what a term or a campaign began beside the loop
	loading     sync.Mutex      // orders answers about the bucket; never held across I/O
	campaigning atomic.Bool     // it would answer a vacancy

	reads         readPermission // belongs to the loop
	bucketUnknown bool           // the bucket's info could not be read when the key was won last; belongs to the loop
	givenUp       bool           // a write whose outcome is unknown was given up; nothing proves later that it is not applied; belongs to the loop
	notBefore     time.Time      // no campaign and no read on account of a hint before this; belongs to the loop
	preempted     time.Time      // when a leader was last asked to hand over, or the run began; belongs to the loop
}

// bucketInfo is what a run knows of its bucket, and the durations that follow from it.
type bucketInfo struct {
	kv.Info
	settings.Timing
}

// info returns what is known of the bucket. It must have been reached.
func (r *run) info() *bucketInfo { return r.now.Load().info }

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

	if err := r.waitForBucket(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	info := r.info()
	r.listener = notify.Listen(r.bucket, info.Info, notify.Config{
		Key: r.key, Name: r.name, Instance: r.instance, Priority: r.opts.priority, Fair: r.opts.fair, TTL: info.Timing.TTL, Spread: info.Spread(),
		Closed: func() { r.fail(nats.ErrConnectionClosed) }, Log: r.opts.Log(),
	})
	defer r.listener.Close()
	r.update(func(s *snapshot) { s.listener = r.listener })
	defer r.update(func(s *snapshot) { s.listener = nil })
	if r.bucket.Conn() != nil {
		r.member = control.Join(r.bucket, r.key, served{r}, r.opts.Log())
		defer r.member.Leave()
	}
	if r.opts.health != nil {
		defer r.startHealthChecks(ctx)()
	}
	defer r.background.Wait()
	defer r.cancel()
	r.watchdog.busy("waiting for a source of notifications")
	defer r.watchdog.busy("stopping")
	return r.loop(ctx)
}

// loop campaigns and leads in turn.
func (r *run) loop(ctx context.Context) error {
	r.preempted = time.Now()
	due, lost := time.Now().Add(timeutil.Random(r.info().Splay)), 0
	r.listener.WaitReady(ctx, r.info().Took)
	for ctx.Err() == nil {
		t, err := r.campaign(ctx, due, lost)
		if t == nil {
			return err
		}
		if finished, err := r.lead(ctx, t); finished {
			return err
		}
		switch {
		case ctx.Err() != nil:
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
func (r *run) waitForBucket(ctx context.Context) error {
	return r.bucket.WaitFor(ctx, r.log, func() error {
		r.watchdog.busy("loading the bucket's info")
		info, err := r.loadBucket(ctx)
		if err == nil {
			r.log.Debug("Bucket loaded", "bucket", r.bucket.Bucket(), "ttl", info.Timing.TTL, "interval", info.Interval, "stand-down", info.StandDown)
		}
		return err
	})
}

// loadBucket reads the bucket's info once.
func (r *run) loadBucket(ctx context.Context) (*bucketInfo, error) {
	info, err := r.bucket.Load(ctx)
	if err == nil {
		err = info.Validate()
	}
	var timing settings.Timing
	if err == nil {
		timing, err = r.opts.Timing(info.TTL)
	}
	if err != nil {
		r.requestFailed(err)
		return nil, err
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if known := r.info(); known != nil && info.Read.Before(known.Read) {
		return known, nil // the control service has loaded it later, and was answered before
	}
	loaded := &bucketInfo{info, timing}
	r.setPaused(info.Paused[r.key])
	r.update(func(s *snapshot) { s.info, s.lastError = loaded, "" })
	return loaded, nil
}

// requestFailed remembers an error for Status. A connection that is closed for good ends the run.
func (r *run) requestFailed(err error) {
	r.update(func(s *snapshot) { s.lastError = err.Error() })
	if errors.Is(err, nats.ErrConnectionClosed) {
		r.fail(nats.ErrConnectionClosed)
	}
}

// requestSucceeded forgets the error of the last request.
func (r *run) requestSucceeded() {
	if r.now.Load().lastError != "" {
		r.update(func(s *snapshot) { s.lastError = "" })
	}
}

// fail ends the run, and a term at once, for a reason that no waiting mends.
func (r *run) fail(err error) {
	err = fmt.Errorf("election %q of %q cannot go on, make a new one on a new connection: %w", r.key, r.name, err)
	if !r.failed.CompareAndSwap(nil, &err) {
		return
	}
	r.update(func(s *snapshot) { s.failure = err.Error() })
	r.log.Error("Connection closed, stopping", "error", err)
	if t := r.now.Load().term; t != nil {
		t.end(ReasonClosed)
	}
	r.cancel()
}

// stateChanged reports a change of state to the log and the metrics.
func (r *run) stateChanged(to State, why Reason, t *activeTerm) {
	r.metrics.stateChanged(to, why)
	attrs := []any{"state", to, "reason", string(why)}
	if t != nil {
		attrs = append(attrs, "term", t.term.Number)
	}
	r.log.Info("State changed", attrs...)
}

// sawLeader remembers who holds the key.
func (r *run) sawLeader(l Leader) {
	before := r.now.Load().leader
	r.update(func(s *snapshot) { s.leader = &l })
	r.calls.leads(l)
	if l.Instance != r.instance && (before == nil || before.Instance != l.Instance || before.Name != l.Name) {
		r.log.Info("Leader seen", "leader", l.Name, "term", l.Term)
	}
}

// record returns the record to be written next, in a term that was won at the given time.
func (r *run) record(since time.Time) record.Record {
	info := r.info()
	return record.Record{
		Name: r.name, Instance: r.instance, Attempt: r.attempt(), Started: r.now.Load().started, Since: since.Round(0), BucketCreated: info.Created,
		Host: r.host, PID: r.pid, Priority: r.opts.priority, Metadata: *r.metadata.Load(), IntervalMs: record.Milliseconds(info.Interval),
	}
}

// encode returns the bytes to be stored for a record that is no release.
func (r *run) encode(rec record.Record) []byte {
	if r.opts.PlainValue {
		return []byte(rec.Name)
	}
	return rec.Encode()
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
		d = min(max(r.opts.backoff.Duration(lost), settings.MinPause), info.Timing.TTL)
	}
	return d
}

// setWait publishes the time from the last campaign or renewal to the next.
func (r *run) setWait(d time.Duration) { r.update(func(s *snapshot) { s.wait = d }) }
