package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Errors to be tested for with errors.Is.
var (
	// ErrInvalidOption is returned by NewElection for a name, key, bucket or option that cannot be used, and by Start
	// and Run for one that does not fit the bucket's TTL. Every problem is named in it.
	ErrInvalidOption = errors.New("invalid option")
	// ErrBucketUnsuitable is returned by Start and Run when the bucket can be reached and is not fit for elections.
	ErrBucketUnsuitable = errors.New("bucket unsuitable for elections")
	// ErrAlreadyRunning is returned by Start and Run while another call of either is running.
	ErrAlreadyRunning = errors.New("election is already running")
	// ErrStopped is returned by Start and Run after Stop.
	ErrStopped = errors.New("election was stopped")
	// ErrNotLeader is returned by what only a leader can do; it is also the cause of the end of a leader's context.
	ErrNotLeader = errors.New("not the leader")
	// ErrNoLeader is returned where a leader was asked for and there is none.
	ErrNoLeader = errors.New("no leader")
	// ErrNoCandidate is returned by Transfer when the candidate that it names is not there, or not ready to take over.
	ErrNoCandidate = errors.New("no candidate")
)

// Election is one candidate in one election. Make it with [NewElection], and let it stand with [Election.Start] or
// [Election.Run]. All methods may be called at any time, from any goroutine, and from inside any callback.
//
// # Callbacks
//
// [OnWon], [OnLost], their forms with a context, [OnCampaign] and [OnLeaderChange] are called one at a time, in order, from
// a goroutine that is not the one which renews: a callback may take its time or panic (which is logged) and costs neither
// the lease nor the process, nor keeps others of its kind from being called. OnWon and OnLost alternate strictly, and a
// term that ended before its OnWon could be called is not announced at all. OnLost begins no later than the lease's
// deadline unless another callback is still running. A candidate does not campaign again, and releases nothing, before the
// callbacks of its last term have returned.
type Election struct {
	name, key string
	bucket    jetstream.KeyValue
	opts      options
	instance  string
	host      string
	pid       int
	log       *slog.Logger
	metrics   *metrics
	announcer announcer

	tenure      atomic.Pointer[tenure] // nil while the key is not held
	running     atomic.Bool
	facts       atomic.Pointer[facts]  // of the bucket; nil until it was reached
	seen        atomic.Pointer[Leader] // the last leader that was read
	metadata    atomic.Pointer[map[string]string]
	started     atomic.Pointer[time.Time] // when it last began to stand; nil before
	gate        gate
	campaigning atomic.Bool            // whether it campaigns, and does not wind up
	illness     atomic.Pointer[string] // why it is unhealthy, or may be about to be; nil if it is not
	nudged      chan struct{}          // receives when a leader should renew soon
	lastError   atomic.Pointer[string]
	broken      atomic.Pointer[string] // why it cannot run again on this connection; nil if it can
	unreadable  atomic.Bool            // whether the key is known not to be readable, so that notifications are of no use
	ear         atomic.Pointer[ear]    // nil while it does not run
	pulse       atomic.Pointer[beat]
	wait        atomic.Int64 // until the next campaign or renewal, as it was last set
	attempts    atomic.Uint64
	wins        atomic.Uint64
	losses      atomic.Uint64

	blind      blindness // belongs to the loop
	unsurveyed bool      // whether the bucket could not be looked at when the key was won last; belongs to the loop
	mayArrive  bool      // whether a write that was given up may still be applied, after a rewind over any revision; belongs to the loop

	mu      sync.Mutex // guards what follows; never held across I/O or a callback
	stopped bool
	current *run // nil while nothing runs
}

// run is one call of Start or Run, from its beginning to its return.
type run struct {
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why it must end, unless it was told to
	done   chan struct{}         // closed when it has returned
	loop   uint64                // the goroutine that called
	work   *work                 // the last that was begun; nil if none was
	health uint64                // the goroutine that checks the health; 0 if none does
}

// NewElection returns a candidate called name in the election that key is in bucket. The name should be the candidate's
// own in the fleet: it is what people see. The bucket needs a TTL between 1 s and 1 h, 2 s or more by preference, and a
// history of 1; that and what depends on it is checked by [Election.Start]. All else is checked here: the error wraps
// [ErrInvalidOption] and names every problem. Nothing is sent to the server.
func NewElection(name, key string, bucket jetstream.KeyValue, opts ...Option) (*Election, error) {
	o := collect(opts)
	if err := o.validate(name, key, bucket); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // a record without a host is still a record
	e := &Election{name: name, key: key, bucket: bucket, opts: o, instance: nuid.Next(), host: host, pid: os.Getpid(), nudged: make(chan struct{}, 1)}
	e.log = o.slog().With("election", key, "name", name)
	e.metadata.Store(&o.metadata)
	e.metrics = newMetrics(e)
	e.announcer = announcer{onWon: o.onWon, onLost: o.onLost, onCampaign: o.onCampaign, onLeader: o.onLeader, log: e.log}
	return e, nil
}

// Start stands as a candidate, and leads whenever it wins, until ctx ends or Stop is called. It blocks, and returns nil
// once all is wound up: callbacks have returned, and the key is released if it was held. While the server cannot be
// reached it waits. It returns [ErrBucketUnsuitable] or [ErrInvalidOption] when it can and the bucket, or an option on
// this bucket, is wrong, [ErrAlreadyRunning], and [ErrStopped] after Stop. A connection that is closed for good ends leadership at
// once, and Start with an error that is nats.ErrConnectionClosed: at once with [WithJetStream], else at the next request. After
// its context ended it may be called again.
func (e *Election) Start(ctx context.Context) error {
	return e.stay(ctx, nil)
}

// Run is [Election.Start] with work to be done by the leader. It campaigns for ever and calls work once per term, when
// leadership counts, with a context that ends when leadership does, for whatever reason; context.Cause tells it. Then
// work should return soon: meanwhile this candidate does not campaign, and if it stopped or resigned it keeps the key,
// for at most the release timeout.
//
// If work returns while it still leads, the key is released and Run returns work's error. A panic in work is returned
// as an error too. An error that is [ErrNotLeader], as fence.ErrFenced is, is taken for a resignation instead: Run campaigns
// again, one interval later. Otherwise work's error counts for nothing, and Run returns nil once ctx ended or Stop was called,
// after work has returned, and the errors that Start does.
func (e *Election) Run(ctx context.Context, work func(ctx context.Context, t Term) error) error {
	if work == nil {
		return invalid("Run was given no work: pass a function, or call Start")
	}
	return e.stay(ctx, work)
}

// stay is what Start and Run do; do is nil for Start.
func (e *Election) stay(parent context.Context, do func(context.Context, Term) error) (err error) {
	ctx, leave, err := e.enter(parent)
	if err != nil {
		return err
	}
	defer leave()
	if ctx.Err() != nil {
		return nil
	}
	defer func() {
		if failed := e.current.failed.Load(); failed != nil && err == nil {
			err = *failed
		}
	}()
	if err := e.metrics.register(); err != nil {
		return err
	}
	defer e.metrics.unregister()
	began := time.Now().UTC().Round(0)
	e.started.Store(&began)
	e.broken.Store(nil)
	e.blind, e.unsurveyed, e.mayArrive = blindness{}, false, false
	e.unreadable.Store(false)
	e.busy("starting")
	e.running.Store(true)
	defer e.running.Store(false)
	e.moved(CandidateState, reasonStarted, nil)
	defer e.moved(UnknownState, reasonStopped, nil)
	defer e.pulse.Store(nil)
	defer func() {
		e.beat("waiting for callbacks to return", time.Now().Add(e.releaseTime()))
		<-e.announcer.hush()
	}()

	if err := e.survey(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ear := e.listen(e.facts.Load())
	defer ear.close()
	e.ear.Store(ear)
	defer e.ear.Store(nil)
	if e.opts.health != nil {
		defer e.attend(ctx)()
	}
	e.busy("looking at what stands under the key")
	defer e.busy("leaving the election")
	due, lost := time.Now().Add(randomBelow(e.facts.Load().splay)), 0
	ear.waitReady(ctx, e.facts.Load().took)
	for ctx.Err() == nil {
		t, err := e.campaign(ctx, due, lost)
		if t == nil {
			return err
		}
		if finished, err := e.lead(ctx, t, do); finished {
			if parent.Err() != nil && errors.Is(err, parent.Err()) {
				return nil // the work heard of the end of parent before this loop did
			}
			return err
		}
		if due, lost = time.Now().Add(t.interval), 0; !t.reason.yields() {
			due, lost = time.Now().Add(e.nextCampaign(1)), 1
		}
	}
	return nil
}

// releaseTime returns how long callbacks and work may take once they should return; 0 while the bucket was not reached, as
// then there are none of a term.
func (e *Election) releaseTime() time.Duration {
	if f := e.facts.Load(); f != nil {
		return f.releaseTimeout
	}
	return 0
}

// enter begins a run unless there is one, or Stop was called.
func (e *Election) enter(parent context.Context) (context.Context, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
		return nil, nil, ErrStopped
	case e.current != nil:
		return nil, nil, ErrAlreadyRunning
	}
	ctx, cancel := context.WithCancel(parent)
	r := &run{cancel: cancel, done: make(chan struct{}), loop: goroutine()}
	e.current = r
	return ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		cancel()
		e.current = nil
		close(r.done)
	}, nil
}

// Stop ends the election for good: leadership ends at once, callbacks and work wind up, and the key is released if it
// was held. It returns when all that is done, which callbacks or work that do not return can delay without limit; only
// when it is called from inside one of them, or from what logs for what it would wait for, it returns at once. Work that
// waits for a goroutine of its own in which Stop is called waits for ever. Stop may be called again, and before Start.
func (e *Election) Stop() {
	e.mu.Lock()
	e.stopped = true
	r, inside := e.current, e.calledFromInside()
	e.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel() // first, lest the loop stand again for what it releases
	if t := e.tenure.Load(); t != nil {
		t.end(reasonStopped)
	}
	if !inside {
		<-r.done
	}
}

// Resign gives up leadership in order: leadership ends at once, callbacks and work wind up, and then the key is released
// for somebody else to take. The candidate stays one, but holds back one campaign interval. Resign returns when the key
// is released, or at once when it is called from inside a callback or the work. It returns [ErrNotLeader] if the key is
// not held, or was lost before it could be released, and ctx's error if that ends before; the resignation goes on.
func (e *Election) Resign(ctx context.Context) error {
	t := e.tenure.Load()
	if t == nil {
		return ErrNotLeader
	}
	t.end(reasonResigned)
	_, err := e.handedOver(ctx, t)
	return err
}

// handedOver waits until the key is released or given up, unless it is called from inside what that waits for.
func (e *Election) handedOver(ctx context.Context, t *tenure) (inside bool, err error) {
	e.mu.Lock()
	inside = e.calledFromInside()
	e.mu.Unlock()
	if inside {
		return true, nil
	}
	select {
	case <-t.over:
	case <-ctx.Done():
		select {
		case <-t.over: // both at once, when an operator asked for it and the candidate stops
		default:
			return false, ctx.Err()
		}
	}
	return false, t.outcome
}

// calledFromInside says whether this goroutine is one that the run waits for: the one that called Start or Run or the one
// that checks the health, which may log, that of the callbacks, or that of the work. The caller holds mu.
func (e *Election) calledFromInside() bool {
	self := goroutine()
	if e.current == nil || self == 0 {
		return false
	}
	return self == e.current.loop || self == e.current.health || self == e.announcer.caller.Load() ||
		e.current.work != nil && self == e.current.work.caller.Load()
}

// IsLeader says whether this candidate leads, now: leadership counts and the lease has not run out by the clock. It
// takes no lock, allocates nothing and never waits, and a stuck loop, a paused process, a suspended machine or a reply
// that never comes cannot keep it true. Between the answer and what is done about it time passes: see [Term.Token].
func (e *Election) IsLeader() bool {
	t := e.tenure.Load()
	return t != nil && t.leads()
}

// Term returns the term that is led now, and false if none is.
func (e *Election) Term() (Term, bool) {
	if t := e.tenure.Load(); t != nil && t.leads() {
		return t.term, true
	}
	return Term{}, false
}

// State returns where the candidate stands. Like [Election.IsLeader] it reads the clock and never waits.
func (e *Election) State() State {
	if t := e.tenure.Load(); t != nil && t.holds() {
		return t.lease.Load().state
	}
	if e.running.Load() {
		return CandidateState
	}
	return UnknownState
}

// Leader asks the bucket who leads now. It returns [ErrNoLeader] if nobody holds the key, and else what the record says: a
// Leader without a Term holds the key, but its leadership does not count yet. On a replicated bucket the answer may be
// a little out of date; never base what only a leader may do on it.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	var ttl time.Duration
	if f := e.facts.Load(); f != nil {
		ttl = f.ttl
	}
	return readLeader(ctx, e.bucket, e.key, ttl)
}

// readLeader reads who holds a key of a bucket with the given TTL.
func readLeader(ctx context.Context, bucket jetstream.KeyValue, key string, ttl time.Duration) (Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	entry, err := bucket.Get(ctx, key)
	if classify(err) == absent {
		return Leader{}, ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("leader of %q: %w", key, err)
	}
	r := parseRecord(entry.Value())
	if _, released := r.released(); released {
		return Leader{}, ErrNoLeader
	}
	return r.leader(key, entry.Revision(), entry.Created(), ttl), nil
}

// attempt returns the id of the next write, unlike that of any other.
func (e *Election) attempt() string {
	return e.instance + "." + strconv.FormatUint(e.attempts.Add(1), 36)
}

// failed remembers an error for Status. A connection that is closed for good ends the run.
func (e *Election) failed(err error) {
	text := err.Error()
	e.lastError.Store(&text)
	if errors.Is(err, nats.ErrConnectionClosed) {
		e.failForGood(nats.ErrConnectionClosed)
	}
}

// failForGood ends the run, and a term at once, for a reason that no waiting mends.
func (e *Election) failForGood(err error) {
	e.mu.Lock()
	r := e.current
	e.mu.Unlock()
	if r == nil {
		return
	}
	err = fmt.Errorf("election %q of %q cannot go on, make a new one on a new connection: %w", e.key, e.name, err)
	if !r.failed.CompareAndSwap(nil, &err) {
		return
	}
	text := err.Error()
	e.broken.Store(&text)
	e.log.Error("Connection closed, leaving the election", "error", err)
	if t := e.tenure.Load(); t != nil {
		t.end(reasonClosed)
	}
	r.cancel()
}

// moved makes a change of standing known in the log and the metrics.
func (e *Election) moved(to State, why reason, t *tenure) {
	e.metrics.moved(to, why)
	attrs := []any{"state", to, "reason", string(why)}
	if t != nil {
		attrs = append(attrs, "term", t.term.Number)
	}
	e.log.Info("State changed", attrs...)
}
