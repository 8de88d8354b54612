package election

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

// Term identifies one uninterrupted period of leadership. It is comparable and may be copied and kept.
//
// Number is the revision of the write that won the key: for one key of one bucket every later term has a larger one. BucketCreated, the
// instant at which the stream behind the bucket was created, orders terms across a bucket that was deleted and made again. Together
// they are a fencing token in the sense of Martin Kleppmann's "How to do distributed locking" (2016): see [Term.Token].
type Term struct {
	Key           string    `json:"key"`
	Name          string    `json:"name"`           // of the candidate that leads
	Number        uint64    `json:"number"`         // the revision of the write that won
	BucketCreated time.Time `json:"bucket_created"` // by the server's clock
	Since         time.Time `json:"since"`          // when the key was won, by this host's clock; leadership counts from later on

	active *activeTerm
}

// Token returns the term as a fencing token: text that sorts, byte by byte, as the terms of its key do. Send it along with every
// effect outside, and let the receiver refuse a token that sorts before one it has seen.
func (t Term) Token() string {
	var created uint64
	if !t.BucketCreated.IsZero() {
		created = uint64(t.BucketCreated.UnixNano())
	}
	return fmt.Sprintf("%016x-%016x", created, t.Number)
}

// Compare returns -1 if t is an earlier term than u, 0 if they are the same, and 1 if t is a later one. It means nothing for terms of
// different keys.
func (t Term) Compare(u Term) int {
	return cmp.Or(t.BucketCreated.Compare(u.BucketCreated), cmp.Compare(t.Number, u.Number))
}

// Valid reports whether this very term still counts, by the clock, now. Ask right before each effect: it reads the clock, takes no lock,
// and allocates nothing. It cannot promise that the answer still holds when the effect takes place; the [Term.Token] is for that. The
// zero Term is never valid.
func (t Term) Valid() bool {
	return t.active != nil && t.active.leads()
}

// Deadline returns the instant at which the lease on the key ends unless it is renewed before: a moving limit for work that is to
// stop, and for the deadlines of its requests. Once the key was released or lost the deadline lies in the past. When the wall clock was
// stepped or the machine was suspended since the last renewal, Deadline is now plus what is really left, so that [time.Until] is right
// for it: call Deadline again rather than keep what it returned.
func (t Term) Deadline() time.Time {
	if t.active == nil {
		return time.Time{}
	}
	return t.active.lease.Load().ends(time.Now())
}

// leaseState is what a holder of the key may believe, and until when. It is immutable: every change makes a new one.
type leaseState struct {
	lease.Lease
	timing   *settings.Timing
	state    State     // LeaderElectState, LeaderState, or CandidateState once leadership has ended
	deadline time.Time // with its monotonic reading; it is right while both clocks of time.Now agree
}

// processStart is a reading of all clocks that is older than every write of this process.
var processStart = lease.Read()

// left returns what is left of the lease at now, by the rule of package internal/lease; 0 or less once the lease is over.
func (l *leaseState) left(now time.Time) time.Duration { return l.Left(lease.Of(now), lease.SinceBoot) }

// lasts reports whether the lease lasts at now.
func (l *leaseState) lasts(now time.Time) bool { return l.left(now) > 0 }

// ends returns the instant at which the lease ends, as it appears at now.
func (l *leaseState) ends(now time.Time) time.Time {
	if l.Agreed(lease.Of(now)) {
		return l.deadline
	}
	return now.Add(l.left(now))
}

// renewed returns l with the deadline that a write earned which was sent at the given time and has been acknowledged.
func (l leaseState) renewed(sent time.Time, length time.Duration) *leaseState {
	l.Lease, l.deadline = l.Renew(lease.Of(sent), length, lease.Read()), sent.Add(length)
	return &l
}

// ended returns l with its lease ended at now, unless the lease has run out before.
func (l leaseState) ended(now time.Time) *leaseState {
	if l.lasts(now) {
		l.Lease, l.deadline = lease.Ended(lease.Of(now)), now
	}
	return &l
}

// activeTerm is a candidate's hold on the key, from the write that won it to its release or loss.
//
// Leadership is ended by whichever comes first: the loop, which found proof of a loss, a timer at the deadline, or a caller that stops
// or resigns. None of them waits for another, and no renewal restores leadership.
type activeTerm struct {
	*settings.Timing         // belongs to the loop; others read that of the lease
	owner            *config // of the candidate
	calls            *dispatcher
	term             Term
	ctx              context.Context // the leader's context: ends, with a cause, when leadership does
	cancel           context.CancelCauseFunc

	lease  atomic.Pointer[leaseState] // read by anybody, replaced under mu
	mu     sync.Mutex                 // never held across I/O or a callback
	expiry *time.Timer
	reason Reason           // why leadership ended; written before ended is set
	lost   Reason           // why the key was lost after that; "" if it was not; guarded by mu
	led    bool             // leadership counted once; likewise
	target record.Successor // that was named by a transfer; likewise
	ended  atomic.Bool      // leadership has ended

	over    wakeup.Latch // closed when the key was released or given up; guarded by mu
	outcome error        // nil if it was released; written before over is closed

	holding // belongs to the loop
}

// holding is what the loop knows of the key while it holds it.
type holding struct {
	revision   uint64             // of our last write that is known to have been applied
	sent       time.Time          // just before that write was sent
	stated     time.Duration      // the lease that it states; 0 if none
	standDown  time.Duration      // from the acknowledgement of the win
	counts     time.Time          // its end: leadership counts from the first renewal sent at this time or later
	next       time.Time          // when to renew, or to try again
	failures   int                // tries that failed in a row
	won        Reason             // over what the key was won
	successors []record.Successor // that were known when the key was won
	priorities []int              // the highest of their priorities
	queue      []string           // those that waited for a lock when it was won

	secret       record.Secret   // that the release reveals
	predecessors []record.Secret // of the terms before, the last first, that ended by a release

	unsure     bool      // this may be another bucket than the one the term was won in
	bucket     time.Time // when that bucket was created, as its server said last: not what the term says where that has changed
	renamed    time.Time // when the renewal was sent by which that changed: had an earlier one hit the record of another, in another bucket, its lease may last for a TTL
	recognized time.Time // just before the last read that showed our last write there
	reconnects uint64    // how often the connection had been made again when that bucket was last known to be the same

	leadsAtOnce bool  // leadership counts from the write that won
	brief       bool  // renewals name no successor, because a record that did was too large
	bare        bool  // the release has no metadata, for the same reason
	work        *work // nil while there is none
}

// newActiveTerm returns the term that a write won which was sent and acknowledged at the given times, and in which leadership counts
// after the stand-down. stated is the lease that the write states. ctx is the parent of the leader's context; its end does not end leadership.
func newActiveTerm(ctx context.Context, owner *config, calls *dispatcher, term Term, timing *settings.Timing, stated time.Duration, sent, acknowledged time.Time, standDown time.Duration) *activeTerm {
	length := earned(timing, stated)
	t := &activeTerm{
		Timing: timing, owner: owner, calls: calls, term: term,
		holding: holding{revision: term.Number, sent: sent, stated: stated, standDown: standDown, counts: acknowledged.Add(standDown), bucket: term.BucketCreated},
	}
	t.term.active = t
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.lease.Store(&leaseState{
		Lease:  lease.New(lease.Of(sent), length, processStart, lease.Read()),
		timing: timing, state: LeaderElectState, deadline: sent.Add(length),
	})
	t.next = t.due()
	t.mu.Lock() // the timer may fire before expiry is set
	defer t.mu.Unlock()
	t.expiry = time.AfterFunc(t.lease.Load().left(time.Now()), func() { t.end(ReasonDeadline) })
	return t
}

// earned returns how long the lease is that a write earns which states the given length, 0 if it states none: others go by what it states, also
// where the TTL of the bucket has become longer since.
func earned(timing *settings.Timing, stated time.Duration) time.Duration {
	if stated > 0 {
		return min(stated, timing.LeaseTime())
	}
	return timing.LeaseTime()
}

// leads reports whether leadership counts now. It is all that IsLeader and Valid do.
func (t *activeTerm) leads() bool {
	l := t.lease.Load()
	return l.state == LeaderState && l.lasts(time.Now())
}

// holdsKey reports whether the lease on the key lasts, whether leadership counts or not.
func (t *activeTerm) holdsKey() bool { return t.lease.Load().lasts(time.Now()) }

// remaining returns what is left of the lease on the key; never less than 0.
func (t *activeTerm) remaining() time.Duration { return max(0, t.lease.Load().left(time.Now())) }

// number returns the number of the term as a renewal sent at the given time writes it: 0 while leadership does not count.
func (t *activeTerm) number(sent time.Time) uint64 {
	if !t.led && (sent.Before(t.counts) || t.lease.Load().state == CandidateState) {
		return 0
	}
	return t.term.Number
}

// due returns when the next renewal is due if the last succeeded: one interval after it was sent or, for a leader-elect, at the end of
// the stand-down where that comes before, or so soon after that one renewal can serve for both.
func (t *activeTerm) due() time.Time {
	due := t.sent.Add(t.Interval)
	if t.lease.Load().state == LeaderElectState && t.counts.Before(due.Add(t.Slack())) {
		return t.counts
	}
	return due
}

// coalescedPart is by what part of the interval a renewal is brought forward at most to be made together with others.
const coalescedPart = 64

// coalescedAt keeps the times of this process apart from those of others.
var coalescedAt = rand.Int64N(int64(time.Hour))

// coalesce brings the next renewal of a leader forward to a time at which others of this process are made too: for each of a thousand,
// waking up costs more than the renewal itself.
func (t *activeTerm) coalesce() {
	if part := int64(t.Interval / coalescedPart); t.lease.Load().state == LeaderState && part > 0 {
		t.next = t.next.Add(-time.Duration((t.next.UnixNano() + coalescedAt) % part))
	}
}

// renewed extends the lease by a write that is known to have been applied, and lets leadership count from it if the stand-down is over.
// It returns false and changes nothing if the lease has run out: an acknowledgement after the deadline counts for nothing.
func (t *activeTerm) renewed(revision uint64, stated time.Duration, sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lease.Load()
	if !l.lasts(time.Now()) {
		return false
	}
	next := l.renewed(sent, earned(t.Timing, stated))
	if l.state == LeaderElectState && !sent.Before(t.counts) {
		next.state = LeaderState
		t.led = true
	}
	t.lease.Store(next)
	t.expiry.Reset(next.left(time.Now()))
	t.revision, t.sent, t.stated = revision, sent, stated
	t.next = t.due()
	t.failures = 0
	return true
}

// adapt takes over other durations, because the bucket's TTL has changed. A lease that is shorter by them ends sooner at once, since the key
// does too; a longer one is earned by the next renewal.
func (t *activeTerm) adapt(timing *settings.Timing) {
	if *t.Timing == *timing {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := *t.lease.Load()
	if l.timing = timing; timing.LeaseTime() < t.LeaseTime() && l.lasts(time.Now()) {
		l = *l.renewed(t.sent, earned(timing, t.stated))
		t.expiry.Reset(l.left(time.Now()))
	}
	t.lease.Store(&l)
	t.Timing = timing
	t.next = timeutil.Earlier(t.next, t.due())
}

// count lets leadership count from the write that won, and reports whether it does: the lease may have run out, or leadership have ended.
func (t *activeTerm) count() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := *t.lease.Load()
	if l.state != LeaderElectState || !l.lasts(time.Now()) {
		return false
	}
	l.state, t.led = LeaderState, true
	t.lease.Store(&l)
	t.next = t.due()
	return true
}

// setTarget names the candidate that is to take over. The error says why it does not: another is named already, or the term has ended.
func (t *activeTerm) setTarget(c control.Candidate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := t.lease.Load().state == CandidateState
	switch {
	case ended && t.lost != "":
		return &TermEndedError{t.term, t.lost}
	case ended && !t.reason.voluntary():
		return &TermEndedError{t.term, t.reason}
	case ended, t.target.Name != "": // a term that has ended may be releasing already
		return fmt.Errorf("%w any more: another handover has begun", ErrNotLeader)
	}
	t.target = record.Successor{Name: c.Name, ID: record.QueueID(c.Instance)}
	return nil
}

// lostAfter returns why the key was lost after leadership had ended; "" if it was not.
func (t *activeTerm) lostAfter() Reason {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// endLease ends the lease, once the key was released or is known to be lost.
func (t *activeTerm) endLease() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease.Store(t.lease.Load().ended(time.Now()))
	t.expiry.Stop()
}

// end ends leadership, and reports whether it was this call that did. If the reason is a voluntary one the lease goes on, so that nobody
// else leads while callbacks and work return; if not, the lease ends too, whatever ended leadership before.
func (t *activeTerm) end(why Reason) bool {
	t.mu.Lock()
	l, now := t.lease.Load(), time.Now()
	if left := l.left(now); why == ReasonDeadline && left > 0 { // it was renewed while the timer fired
		t.expiry.Reset(left)
		t.mu.Unlock()
		return false
	}
	next := *l
	if !why.voluntary() {
		next = *l.ended(now)
		t.expiry.Stop()
	}
	next.state = CandidateState
	t.lease.Store(&next)
	first := l.state != CandidateState
	switch {
	case first:
		t.reason = why
	case t.lost == "" && t.reason.voluntary() && !why.voluntary() && l.lasts(now):
		t.lost = why
	}
	t.mu.Unlock()

	if first {
		t.cancel(&TermEndedError{t.term, why})
		t.calls.leadership(t) // OnLost is due before the loop may look whether a callback is
		t.ended.Store(true)
		wakeup.Send(t.owner.wake)
	}
	return first
}
