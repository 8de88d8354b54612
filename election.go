package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/wakeup"
)

// Election is one candidate in one election. Make it with [NewElection], and have it campaign with [Election.Start] or [Election.Run].
// All methods may be called at any time, from any goroutine, and from inside any callback.
//
// # Callbacks
//
// [OnWon], [OnLost], [OnCampaign], [OnLeaderChange] and [OnNext] are called one at a time, in order, from a goroutine
// that is not the one which renews: a callback may take its time or panic (which is logged), and costs neither the lease nor the
// process, nor keeps others of its kind from being called. OnWon and OnLost alternate strictly, and a term that ended before its OnWon
// could be called is not announced at all. OnLost begins no later than the lease's deadline unless another callback is still running. A
// candidate does not campaign again, and releases nothing, before the callbacks of its last term have returned.
//
// [Election.Resign], [Election.Transfer] and [Election.Shutdown] wait for the callbacks: inside one call them in another goroutine.
// [Election.Stop] never waits.
type Election struct {
	config
	metrics *metrics
	term    atomic.Pointer[activeTerm] // nil while the key is not held
	renamed atomic.Pointer[string]     // the instance that replaced config.instance, once another process was found to use that; nil before

	mu        sync.Mutex      // guards what follows; never held across I/O or a callback
	candidate *core.Candidate // all that is known and decided
	stopped   bool            // Stop was called
	current   *run            // nil while neither Start nor Run is being called
	running   bool            // current has registered its metrics, and has not ended
	leader    *Leader         // the last leader that was read
	requests  requests        // those that failed
	progress  progress        // what the loop does
	unhealthy string          // why the last health checks failed; "" if they did not
	failure   string          // why it cannot run again on this connection; "" if it can
}

// NewElection returns a candidate called name in the election that key names in bucket. The name should be unique in the fleet: it is
// what people see. The bucket needs a TTL between 1 s and 1 h, 2 s or more by preference, and a history of 1; [Election.Start] checks
// that and what depends on it. A [Bucket] brings its connection along; for any other handle see [WithJetStream]. Everything else is
// checked here: the error wraps [ErrInvalidOption] and names every problem. Nothing is sent to the server.
func NewElection(name, key string, bucket jetstream.KeyValue, opts ...Option) (*Election, error) {
	o, err := settings.Of(opts, name, key, bucket)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // a record without a host is still a record
	wake := make(chan struct{}, 1)
	e := &Election{config: config{
		name: name, key: key, instance: record.NewID(), host: host, pid: os.Getpid(), bucket: o.Bucket(bucket), wake: wake, opts: o,
		log: o.Log().With("election", key, "name", name),
	}}
	e.candidate = core.New(&core.Rules{World: &world}) // a run sets the other rules
	e.candidate.Notice(time.Now(), core.SetMetadata{Metadata: o.Metadata})
	e.metrics = newMetrics(&e.config, e.moment)
	if o.LastRequestFailed != nil {
		*o.LastRequestFailed = e.lastRequestFailed
	}
	return e, nil
}

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
	r := &run{Election: e, work: work, ctx: ctx, cancel: cancel}
	r.shell = newShell(r)
	e.current = r
	return r, nil
}

// leave ends a run, so that another one may begin.
func (e *Election) leave(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.cancel()
	e.current = nil
	r.returned.Close()
}

// Stop ends the election for good, and returns at once: leadership ends, callbacks and work return, the key is released if it was held,
// and then Start or Run returns. It may be called from anywhere, again, and before Start. [Election.Shutdown] also waits.
func (e *Election) Stop() {
	e.mu.Lock()
	e.stopped = true
	r := e.current
	e.mu.Unlock()
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
		return nil
	}
	returned := r.returned.Wait()
	e.mu.Unlock()
	return wakeup.Wait(ctx, returned)
}

// Pause keeps this candidate from campaigning until [Election.Resume]. A leader leads on. Pause may be called at any time, before Start
// too, and holds for every later Start.
func (e *Election) Pause() {
	if e.pause(true) {
		e.log.Info("Paused")
	}
}

// Resume ends what [Election.Pause] began.
func (e *Election) Resume() {
	if e.pause(false) {
		e.log.Info("Resumed")
	}
}

// SetMetadata changes what [WithMetadata] set, for a leader too: its record has the new metadata within a tenth of a second or, after
// trouble, with the next renewal that succeeds. It returns an [ErrInvalidOption] if m is larger than 8 KiB. If the bucket or the server does
// not take a record with m, the record keeps the metadata that was written last, a warning is logged, and Status.LastError says so.
func (e *Election) SetMetadata(m map[string]string) error {
	if err := validate.Metadata(m); err != nil {
		return err
	}
	m = maps.Clone(m)
	e.tell(core.SetMetadata{Metadata: m})
	return nil
}

// pause pauses or resumes this candidate, and reports whether that changes anything.
func (e *Election) pause(on bool) (changed bool) {
	before := e.status().Holds & core.Paused
	e.tell(core.Hold{Why: core.Paused, On: on})
	return e.status().Holds&core.Paused != before
}

// IsLeader reports whether this candidate leads, now: leadership counts and the lease has not run out by the clock. It takes no lock,
// allocates nothing and never waits, and a stuck loop, a paused process, a suspended machine or a reply that never comes cannot keep it
// true. Between the answer and what is done about it time passes: see [Term.Token].
func (e *Election) IsLeader() bool {
	t := e.term.Load()
	return t != nil && t.leads()
}

// Term returns the term that this candidate leads now, and false if it leads none.
func (e *Election) Term() (Term, bool) {
	if t := e.term.Load(); t != nil && t.leads() {
		return t.public, true
	}
	return Term{}, false
}

// State returns the state of the candidate. Like [Election.IsLeader] it reads the clock and never waits.
func (e *Election) State() State {
	if t := e.term.Load(); t != nil {
		if l := t.Lease(); l.Left(time.Now(), lease.SinceBoot) > 0 {
			return State(l.State)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return CandidateState
	}
	return UnknownState
}

// Leader asks the bucket who holds the key now. It returns [ErrNoLeader] if nobody does. In a replicated bucket the answer may be a
// little out of date; never base what only a leader may do on it.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	var ttl time.Duration
	if known := e.status().Bucket.TTL; known > 0 {
		ttl = known
	} else if info, err := e.bucket.Load(ctx); err == nil {
		ttl = info.TTL
	} else {
		return Leader{}, fmt.Errorf("leader of %q: %w", e.key, err)
	}
	entry, err := e.bucket.Get(ctx, e.key)
	if kv.Classify(err) == kv.Absent {
		return Leader{}, ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("leader of %q: %w", e.key, err)
	}
	if l, held := LeaderOf(entry, ttl); held {
		return l, nil
	}
	return Leader{}, ErrNoLeader
}

// instanceID returns the present instance, which distinguishes this candidate from all others.
func (e *Election) instanceID() string {
	if renamed := e.renamed.Load(); renamed != nil {
		return *renamed
	}
	return e.instance
}

// status returns what the candidate tells of itself.
func (e *Election) status() core.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.candidate.Status()
}

// view returns what others see of the election now.
func (e *Election) view() view {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := view{
		status: e.candidate.Status(), term: e.term.Load(), leader: e.leader, running: e.running, progress: e.progress, unhealthy: e.unhealthy, failure: e.failure, requests: e.requests,
	}
	if v.term != nil {
		v.lease, v.led = v.term.Lease(), v.term.Core.LedSince
		v.ended, v.why = v.term.Core.Lease.State == core.Follower, Reason(v.term.Core.Reason)
	}
	return v
}

// moment returns how the election stands at now.
func (e *Election) moment(now time.Time) moment {
	v := e.view()
	return v.at(now)
}

// noteRequest takes note of what came of a request.
func (e *Election) noteRequest(kind requestKind, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests.note(time.Now(), kind, err)
}

// lastRequestFailed reports whether the last request failed, of whatever kind.
func (e *Election) lastRequestFailed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.lastFailed
}
