package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
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
	guard       *natsconn.Guard // nil where the connection is not known
	loading     sync.Mutex      // orders answers about the bucket; never held across I/O
	trouble     trouble         // what is wrong with the bucket, as was logged; guarded by loading
	campaigning atomic.Bool     // it would answer a vacancy

	// What follows belongs to the loop.
	unanswered bool          // the last write was not answered, so that replies may not arrive
	secret     record.Secret // of the term that the next win begins, or of the one that is held; none until it is needed
	timer      *time.Timer   // wakes the loop
	reads      readPermission
	reloaded   time.Time // when the bucket's info was last to be loaded again
	preempted  time.Time // when a leader was last asked to hand over, or the run began
	released   time.Time // when a release last named a successor
	warned     bool      // that another candidate has the same name
}

// bucketInfo is what a run knows of its bucket, and the durations that follow from it.
type bucketInfo struct {
	settings.Timing
	created, read   time.Time // and the rest: see [kv.Info]
	took, markerTTL time.Duration
	pinned          bool
}

// trouble is why a bucket cannot be used that could be before.
type trouble string

// The troubles of a bucket, and how they are logged.
const (
	troubleNone  trouble = ""
	troubleGone  trouble = "Bucket is gone, waiting for it"
	troubleUnfit trouble = "Bucket is not fit for elections any more, waiting until it is"
)

// troubleOf returns what the error of loading a bucket says about it; false if it says nothing.
func troubleOf(err error) (t trouble, known bool) {
	switch {
	case err == nil:
		return troubleNone, true
	case kv.IsGone(err):
		return troubleGone, true
	case kv.IsUnfit(err):
		return troubleUnfit, true
	}
	return troubleNone, false
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
		r.requestFailed(infoRequest, err)
		r.setTrouble(err)
		return info, err
	}
	if newest, report := r.loaded(info, timing); newest {
		r.setTrouble(nil)
		report()
	}
	return info, nil
}

// loaded takes note of the bucket's info, unless it is older than what is known: the control service has loaded it later then, and was
// answered before. It returns a function that logs what has changed. The caller calls it without a lock, because the log handler is the
// user's.
func (r *run) loaded(info kv.Info, timing settings.Timing) (newest bool, report func()) {
	r.loading.Lock()
	defer r.loading.Unlock()
	before := r.info()
	if before != nil && info.Read.Before(before.read) {
		return false, nil
	}
	r.requestSucceeded(infoRequest)
	r.holds.set(holdBucketUnusable, false)
	_, paused := info.Paused[r.key]
	report = r.setPaused(paused)
	loaded := &bucketInfo{timing, info.Created, info.Read, info.Took, info.MarkerTTL, info.Pinned}
	r.update(func(s *snapshot) { s.info = loaded })
	if before == nil || before.Timing == timing {
		return true, report
	}
	if l := r.now.Load().listener; l != nil {
		l.SetTiming(timing.TTL, timing.Spread())
	}
	wakeup.Send(r.wake) // a leader adapts at once
	reportPaused := report
	return true, func() {
		r.log.Info("Durations of the bucket have changed", "ttl", timing.TTL, "before", before.TTL, "interval", timing.Interval)
		reportPaused()
	}
}

// setTrouble takes note of what loading the bucket says about it, and logs each change once. A bucket that cannot be used holds this
// candidate back until it can. At the start there is nobody to hold back: an error of the bucket ends the run.
func (r *run) setTrouble(err error) {
	now, known := troubleOf(err)
	if !known || r.now.Load().listener == nil {
		return
	}
	r.loading.Lock()
	before := r.trouble
	r.trouble = now
	r.loading.Unlock()
	if now != troubleNone {
		r.holds.set(holdBucketUnusable, true)
	}
	switch {
	case now == before:
	case now == troubleNone:
		r.update(func(s *snapshot) { s.errors, s.failing = requestErrors{}, false }) // what failed meanwhile says nothing any more
		r.log.Info("Bucket can be used again", "bucket", r.bucket.Bucket())
	default:
		r.log.Warn(string(now), "bucket", r.bucket.Bucket(), "error", kv.Describe(err))
	}
}

// checkBucket loads the bucket's info again, because something happened that a change of the bucket explains.
func (r *run) checkBucket(ctx context.Context) {
	r.reloaded = time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
	defer cancel()
	if _, err := r.loadBucket(ctx); err == nil && !r.listener.InBucket(r.info().created) {
		r.listener.Remake()
	}
}

// requestWentWrong is called when a campaign's request failed: the bucket may be gone, of which the answer to the request itself says
// nothing where a leader is subscribed to attempts.
func (r *run) requestWentWrong(ctx context.Context, err error) {
	switch kv.Failure(err) {
	case kv.FailedNoStream, kv.FailedTimeout:
		if time.Since(r.reloaded) >= r.info().RequestTimeout() {
			r.checkBucket(ctx)
		}
	}
}

// reloadBucket loads the bucket's info for a candidate that is held back: nobody may report that an operator has resumed the election, or
// that the connection was closed.
func (r *run) reloadBucket(ctx context.Context) {
	r.reloaded = time.Now()
	if r.holds.has(holdPausedByOperator) || r.holds.has(holdBucketUnusable) || r.listener.Source() == notify.None {
		r.checkBucket(ctx)
	}
}

// reloadDue returns when reloadBucket is to be called.
func (r *run) reloadDue() time.Time {
	info := r.info()
	r.loading.Lock()
	unfit := r.trouble == troubleUnfit // which an operator mends sooner or later
	r.loading.Unlock()
	switch {
	case unfit:
		return r.reloaded.Add(info.Interval)
	case r.holds.has(holdBucketUnusable):
		return r.reloaded.Add(info.RequestTimeout())
	}
	return timeutil.Later(info.read, r.reloaded).Add(info.Interval)
}

// setPaused takes note of whether an operator has paused the election, and returns a function that logs it if it has changed.
func (r *run) setPaused(paused bool) (report func()) {
	switch {
	case !r.holds.set(holdPausedByOperator, paused):
		return func() {}
	case paused:
		return func() { r.log.Info("Election paused by an operator") }
	}
	return func() { r.log.Info("Election resumed by an operator") }
}

// request is a kind of request. A request that succeeds says nothing of requests of the other kinds: in a full account, say, reads do.
type request int

const (
	infoRequest     request = iota // loads the bucket's info
	readRequest                    // reads the key
	writeRequest                   // writes the key
	metadataRequest                // writes the metadata that is set
	requestKinds
)

// requestErrors are the errors of the last request of each kind, if it failed.
type requestErrors [requestKinds]struct {
	text string // "" if the last request succeeded
	at   time.Time
}

// latest returns the latest error; "" if there is none.
func (e *requestErrors) latest() (text string) {
	var at time.Time
	for _, failed := range e {
		if failed.text != "" && !failed.at.Before(at) {
			text, at = failed.text, failed.at
		}
	}
	return text
}

// requestFailed remembers an error for Status, until a request of the kind succeeds. A connection that is closed for good ends the run.
func (r *run) requestFailed(kind request, err error) {
	r.update(func(s *snapshot) {
		s.errors[kind].text, s.errors[kind].at, s.failing = kv.Describe(err).Error(), time.Now(), true
	})
	if errors.Is(err, nats.ErrConnectionClosed) {
		r.fail(nats.ErrConnectionClosed)
	}
	if kv.Failure(err) == kv.FailedTimeout {
		r.suspectConnection()
	}
}

// suspectConnection has the connection examined: an answer or a notification has not come in time.
func (r *run) suspectConnection() {
	var took time.Duration
	if info := r.info(); info != nil {
		took = info.took
	}
	r.guard.Suspect(took)
}

// requestSucceeded forgets the error of the last request of the kind.
func (r *run) requestSucceeded(kind request) {
	if s := r.now.Load(); s.failing || s.errors[kind].text != "" {
		r.update(func(s *snapshot) { s.errors[kind].text, s.failing = "", false })
	}
}

// writeFailed reports whether the last write failed, other than by a refusal.
func (r *run) writeFailed() bool { return r.now.Load().errors[writeRequest].text != "" }

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
	if to == LeaderElectState && !t.leadsAtOnce { // it does nothing that can be seen until then
		attrs = append(attrs, "stand-down", t.standDown.Round(time.Millisecond), "leads-at", t.counts.UTC().Round(time.Millisecond))
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
		Host: r.host, PID: r.pid, Priority: r.opts.priority, Metadata: r.metadataToStore(), IntervalMs: record.Milliseconds(info.Interval),
		LeaseMs: record.Milliseconds(info.LeaseTime()),
	}
}

// storedMetadata is what of the metadata the bucket takes. It belongs to the loop.
type storedMetadata struct {
	fits    map[string]string  // what was written last
	refused *map[string]string // what is set, if a record with it is too large; nil if not
}

// metadataToStore returns the metadata of the next record: what is set, or what was written last if that is too large.
func (r *run) metadataToStore() map[string]string {
	if set := r.metadata.Load(); set != r.stored.refused {
		return *set
	}
	return r.stored.fits
}

// withoutNewMetadata has the next record do without metadata that no record had yet, and reports whether there was any.
func (r *run) withoutNewMetadata() bool {
	set := r.metadata.Load()
	if set == r.stored.refused || maps.Equal(*set, r.stored.fits) {
		return false
	}
	r.stored.refused = set
	return true
}

// shrinkMetadata is called when a record is too large that has nothing else to leave out. The next has the metadata that fitted last, or
// none. It returns false if the record had none.
func (r *run) shrinkMetadata(rec record.Record, err error) bool {
	if r.opts.PlainValue || len(rec.Metadata) == 0 {
		return false
	}
	set := r.metadata.Load()
	if r.stored.refused == set || maps.Equal(rec.Metadata, r.stored.fits) {
		r.stored.fits = nil
	}
	if r.stored.refused != set {
		r.stored.refused = set
		r.requestFailed(metadataRequest, fmt.Errorf("metadata not stored, a record of %d bytes with it is too large: set less, or have the bucket and the server take larger messages: %w", len(rec.Encode()), err))
		r.log.Warn("Metadata not stored, the record would be too large", "bytes", len(rec.Encode()), "error", err)
	}
	return true
}

// metadataStored is called when a record was written.
func (r *run) metadataStored(rec record.Record) {
	r.stored.fits = rec.Metadata
	if r.metadata.Load() != r.stored.refused {
		r.requestSucceeded(metadataRequest)
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
