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
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// busyTime is how long the loop may be busy before it reports progress again: it makes four requests at most, and each ends.
	busyTime = 4 * kv.RequestTimeout
	// stuckAfter is by how much the loop may be late to report progress before it counts as stuck, on a host that is short of time.
	stuckAfter = 4 * kv.RequestTimeout
	// overdueAfter is for how long a lease may be over before the loop must have stood down: its requests end with the lease.
	overdueAfter = kv.RequestTimeout
)

// run is one call of Start or Run, from its beginning to its return. It owns what lives as long as it does. Its loop alternates between
// campaign and lead; the program counter says which it is.
type run struct {
	*Election
	work     func(context.Context, Term) error // nil for Start
	calls    *dispatcher
	ctx      context.Context // of the loop
	cancel   context.CancelFunc
	failed   atomic.Pointer[error] // why the run must end though nobody stopped it
	returned wakeup.Latch          // closed when it has returned; guarded by the election's mutex

	listener    *notify.Listener
	member      *control.Member // nil where the connection is not known
	background  sync.WaitGroup  // what a term or a campaign began beside the loop
	loading     sync.Mutex      // orders answers about the bucket; never held across I/O
	campaigning atomic.Bool     // it would answer a vacancy

	// What follows belongs to the loop.
	unanswered bool          // the last write was not answered, so that replies may not arrive
	secret     record.Secret // of the term that the next win begins, or of the one that is held; none until it is needed
	timer      *time.Timer   // wakes the loop
	reads      readPermission
	reloaded   time.Time // when the bucket's info was last to be loaded again because this candidate is held back
	preempted  time.Time // when a leader was last asked to hand over, or the run began
	released   time.Time // when a release last named a successor
}

// bucketInfo is what a run knows of its bucket, and the durations that follow from it.
type bucketInfo struct {
	settings.Timing
	created, read   time.Time // and the rest: see [kv.Info]
	took, markerTTL time.Duration
}

// info returns what is known of the bucket. It must have been reached.
func (r *run) info() *bucketInfo { return r.now.Load().info }

// loadBucket reads the bucket's info once, and returns what the server says. What matters later of the latest is in info.
func (r *run) loadBucket(ctx context.Context) (kv.Info, error) {
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
		return info, err
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if known := r.info(); known != nil && info.Read.Before(known.read) {
		return info, nil // the control service has loaded it later, and was answered before
	}
	r.holds.set(holdBucketUnknown, false)
	_, paused := info.Paused[r.key]
	r.setPaused(paused)
	loaded := &bucketInfo{timing, info.Created, info.Read, info.Took, info.MarkerTTL}
	r.update(func(s *snapshot) { s.info, s.lastError = loaded, "" })
	return info, nil
}

// reloadBucket loads the bucket's info for a candidate that is held back: nobody may report that an operator has resumed the election, or
// that the connection was closed.
func (r *run) reloadBucket(ctx context.Context) {
	r.reloaded = time.Now()
	if !r.holds.has(holdPausedByOperator) && !r.holds.has(holdBucketUnknown) && r.listener.Source() != notify.None {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
	defer cancel()
	if _, err := r.loadBucket(ctx); kv.IsUnfit(err) {
		r.holds.set(holdBucketUnknown, false) // its next win ends the run with that error
	}
}

// reloadDue returns when reloadBucket is to be called.
func (r *run) reloadDue() time.Time {
	info := r.info()
	if r.holds.has(holdBucketUnknown) {
		return r.reloaded.Add(info.RequestTimeout())
	}
	return timeutil.Later(info.read, r.reloaded).Add(info.Interval)
}

// setPaused takes note of whether an operator has paused the election.
func (r *run) setPaused(paused bool) {
	if !r.holds.set(holdPausedByOperator, paused) {
		return
	}
	if paused {
		r.log.Info("Election paused by an operator")
	} else {
		r.log.Info("Election resumed by an operator")
	}
}

// requestFailed remembers an error for Status. A connection that is closed for good ends the run.
func (r *run) requestFailed(err error) {
	r.update(func(s *snapshot) { s.lastError = kv.Describe(err).Error() })
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
	log := r.log.Error
	if r.ctx.Err() != nil { // it stops anyway, as after the release of a lock
		log = r.log.Debug
	}
	log("Connection closed, stopping", "error", err)
	if t := r.now.Load().term; t != nil {
		t.end(ReasonClosed)
	}
	r.cancel()
}

// campaigned reports a campaign made in the given state.
func (r *run) campaigned(state State) {
	r.calls.campaign(state)
	r.metrics.campaigned(state)
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
	if l.Instance != r.instanceID() && (before == nil || before.Instance != l.Instance || before.Name != l.Name || before.Term == 0 && l.Term != 0) {
		attrs := []any{"leader", l.Name}
		if l.Term != 0 { // a leader-elect, or a bare name, has none
			attrs = append(attrs, "term", l.Term)
		}
		r.log.Info("Leader seen", attrs...)
	}
}

// record returns the record to be written next, in a term that was won at the given time.
func (r *run) record(since time.Time) record.Record {
	info := r.info()
	return record.Record{
		Name: r.name, Instance: r.instanceID(), Attempt: record.NewID(), Started: r.now.Load().started, Since: since.Round(0), BucketCreated: info.created,
		Host: r.host, PID: r.pid, Priority: r.opts.priority, Metadata: *r.metadata.Load(), IntervalMs: record.Milliseconds(info.Interval),
		LeaseMs: record.Milliseconds(info.LeaseTime()),
	}
}

// encode returns the bytes to be stored for a record that is no release.
func (r *run) encode(rec record.Record) []byte {
	if r.opts.PlainValue {
		return []byte(rec.Name)
	}
	return rec.Encode()
}

// sleep waits until the given time, until ctx ends, or until something happened that may change what the loop does next.
func (r *run) sleep(ctx context.Context, until time.Time) {
	r.timer.Reset(time.Until(until))
	select {
	case <-ctx.Done():
	case <-r.wake:
	}
}

// setWait publishes the time from the last campaign or renewal to the next.
func (r *run) setWait(d time.Duration) { r.update(func(s *snapshot) { s.wait = d }) }

// watchdog knows what the loop is doing, and when it means to be done: so a loop that sleeps until its next campaign, perhaps for hours,
// is distinguished from one that is stuck.
type watchdog struct{ atomic.Pointer[progress] }

// progress is what the loop does.
type progress struct {
	doing string
	due   time.Time // zero if the loop waits for somebody else
}

// expect is called when the loop begins to do something that takes until due.
func (w *watchdog) expect(doing string, due time.Time) { w.Store(&progress{doing, due}) }

// busy is called when the loop begins to do something that waits for nothing but answers of the server.
func (w *watchdog) busy(doing string) { w.expect(doing, time.Now().Add(busyTime)) }

// doing returns what the loop does; "" if it does not run.
func (w *watchdog) doing() string {
	if p := w.Load(); p != nil {
		return p.doing
	}
	return ""
}
