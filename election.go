package election

import (
	"context"
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
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Election is one candidate in one election. Make it with [NewElection], and have it campaign with [Election.Start] or [Election.Run].
// All methods may be called at any time, from any goroutine, and from inside any callback.
//
// # Callbacks
//
// [OnWon], [OnLost], [OnCampaign], [OnLeaderChange] and [OnNext] are called one at a time, in order, from a goroutine
// that is not the one which renews: a callback may take its time or panic (which is logged), and costs neither the lease nor the
// process, nor keeps others of its kind from being called. OnWon and OnLost alternate strictly, and a term that ended before its OnWon
// could be called is not announced at all. OnLost begins no later than the lease's deadline, or within a second of the end of a suspension
// of the machine, unless another callback is still running. A candidate does not campaign again, and releases nothing, before the callbacks
// of its last term have returned.
//
// [Election.Resign], [Election.Transfer] and [Election.Shutdown] wait for the callbacks: inside one call them in another goroutine.
// [Election.Stop] never waits.
type Election struct {
	config
	metrics *metrics
	term    atomic.Pointer[activeTerm] // nil while the key is not held
	renamed atomic.Pointer[string]     // the instance that replaced config.instance, once another process was found to use that; nil before

	mu        sync.Locker     // guards what follows; never held across I/O or a callback
	candidate candidate       // all that is known and decided
	own       *core.Candidate // the same; nil if the key is one of a session, whose claim decides
	stopped   bool            // Stop was called
	current   *run            // nil while neither Start nor Run is being called
	ran       bool            // Start or Run was called before
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
	if claim := o.Claim; claim != nil {
		e.mu, e.candidate = claim, claim
		claim.Lock()
		claim.Attach(attached{e})
		claim.Unlock()
	} else {
		e.own = core.New(&core.Rules{World: &world}) // a run sets the other rules
		e.mu, e.candidate = &sync.Mutex{}, e.own
	}
	e.tell(core.SetMetadata{Metadata: o.Metadata})
	e.metrics = newMetrics(&e.config, e.moment)
	if o.LastRequestFailed != nil {
		*o.LastRequestFailed = e.lastRequestFailed
	}
	return e, nil
}

// candidate decides: a candidate of package core, or a claim of a session.
type candidate interface {
	shell.Core
	Status() core.Status
	Doing() string // in words
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
// not take a record with m, the record keeps the metadata that was written last, a warning is logged, and Status.LastError says so. In an election of
// package session m is written with the next term.
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
	if claim := e.opts.Claim; claim != nil {
		return e.leaderOfClaim(ctx, claim)
	}
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
	if e.opts.Claim != nil {
		return e.opts.Claim.Instance()
	}
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
	if claim := e.opts.Claim; claim != nil {
		if at, err := claim.Failure(); err != nil {
			v.requests.note(at, writeRequest, err)
		}
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
