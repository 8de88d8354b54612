package election

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clocks "github.com/natscampaign/election/internal/lease"
)

// reason says in one word why a candidate's standing changed; it is what logs and metrics show.
type reason string

const (
	reasonStarted   reason = "started"    // to candidate: the election began
	reasonVacant    reason = "vacant"     // to leader-elect: nothing stood under the key
	reasonReleased  reason = "released"   // to leader-elect: the record under the key was a release
	reasonReclaimed reason = "reclaimed"  // to leader-elect: a late write of our own stood under the key
	reasonStoodDown reason = "stood-down" // to leader: the stand-down is over

	reasonStopped      reason = "stopped"      // to candidate, then to unknown: the context ended, or Stop was called
	reasonResigned     reason = "resigned"     // to candidate
	reasonTransferred  reason = "transferred"  // to candidate
	reasonRelinquished reason = "relinquished" // to candidate: it was time to, by the schedule
	reasonUnhealthy    reason = "unhealthy"    // to candidate: the health checks failed
	reasonWorkEnded    reason = "work-ended"   // to candidate: Run's work returned

	reasonOverwritten reason = "overwritten"     // to candidate: somebody else's record stands under the key
	reasonDeleted     reason = "deleted"         // to candidate: the key is gone
	reasonReplaced    reason = "bucket-replaced" // to candidate: the bucket was deleted and made again
	reasonRewound     reason = "rewound"         // to candidate: the server lost the last writes, or the bucket was restored from a copy
	reasonClosed      reason = "closed"          // to candidate: the connection was closed for good
	reasonDeadline    reason = "deadline"        // to candidate: the lease ran out before a renewal succeeded
)

// reasonsTo lists the reasons for which each state is entered.
var reasonsTo = map[State][]reason{
	LeaderElectState: {reasonVacant, reasonReleased, reasonReclaimed},
	LeaderState:      {reasonStoodDown},
	CandidateState: {
		reasonStarted, reasonStopped, reasonResigned, reasonTransferred, reasonRelinquished, reasonUnhealthy, reasonWorkEnded,
		reasonOverwritten, reasonDeleted, reasonReplaced, reasonRewound, reasonClosed, reasonDeadline,
	},
}

// voluntary says whether a term that ended for this reason still holds the key, and releases it.
func (r reason) voluntary() bool {
	return r.yields() || r == reasonStopped || r == reasonWorkEnded
}

// yields says whether a term ended for this reason in favour of others: then its candidate holds back.
func (r reason) yields() bool {
	return r == reasonResigned || r == reasonTransferred || r == reasonRelinquished || r == reasonUnhealthy
}

// cause is what the leader-scoped context's end is put down to.
func (r reason) cause() error { return fmt.Errorf("%w any more: %s", ErrNotLeader, r) }

// lease is what a holder of the key may believe, and until when. It is immutable: every change makes a new one.
type lease struct {
	clocks.Lease
	state    State     // LeaderElectState, LeaderState, or CandidateState once leadership has ended
	deadline time.Time // with its monotonic reading; it is right while both clocks of time.Now agree
}

// processStart is a reading of all clocks that is older than every write of this process.
var processStart = clocks.Read()

// left returns what is left of the lease at now, by the rule of package internal/lease; 0 or less once the lease is over.
func (l *lease) left(now time.Time) time.Duration { return l.Left(clocks.Of(now), clocks.SinceBoot) }

// holds says whether the lease lasts at now.
func (l *lease) holds(now time.Time) bool { return l.left(now) > 0 }

// remaining returns what is left of the lease at now; never less than 0.
func (l *lease) remaining(now time.Time) time.Duration { return max(0, l.left(now)) }

// ends returns the instant at which the lease ends, as it appears at now.
func (l *lease) ends(now time.Time) time.Time {
	if l.Agreed(clocks.Of(now)) {
		return l.deadline
	}
	return now.Add(l.left(now))
}

// renewed returns l with the deadline that a write earned which was sent at the given time and has been acknowledged.
func (l lease) renewed(sent time.Time, length time.Duration) *lease {
	l.Lease, l.deadline = l.Renew(clocks.Of(sent), length, clocks.Read()), sent.Add(length)
	return &l
}

// tenure is one candidate's hold on the key, from the write that won it to its release or loss.
//
// Leadership is ended by whoever comes first: the loop, which found proof of a loss, a timer at the deadline, or a
// caller that stops or resigns. None of them waits for another, and no renewal brings leadership back.
type tenure struct {
	timing
	announcer *announcer
	term      Term
	ctx       context.Context // the leader-scoped context: ends, with a cause, when leadership does
	cancel    context.CancelCauseFunc

	lease   atomic.Pointer[lease] // read by anybody, replaced under mu
	mu      sync.Mutex            // never held across I/O or a callback
	expiry  *time.Timer
	reason  reason        // why leadership ended; written before ended is closed
	led     bool          // whether leadership ever counted; likewise
	nominee string        // who is to take over, if one was named; likewise
	ended   chan struct{} // closed when leadership has ended

	over    chan struct{} // closed when the key was released or given up
	outcome error         // nil if it was released; written before over is closed

	hold // belongs to the loop
}

// hold is what the loop knows of the key while it holds it.
type hold struct {
	revision   uint64            // of our last write known to have been applied
	sent       time.Time         // just before that write was sent
	counts     time.Time         // leadership counts from the first renewal sent at this time or later
	next       time.Time         // when to renew, or to try again
	pending    map[string]sentAt // renewals since then whose outcome is unknown, by attempt
	failures   int               // tries that failed in a row
	won        reason            // over what the key was won
	candidates int               // how many stood when the key was won; 0 if that is not known
	uncounted  bool              // whether there was a leader before who had not counted them
	heirs      []string          // names of some that stood then
	levels     []int             // the highest of their priorities
	unsure     bool              // whether this may be another bucket than the one the term was won in

	work *work // nil while there is none
}

type sentAt = time.Time

// newTenure returns the tenure that a write won which was sent and acknowledged at the given times, and in which
// leadership counts after the stand-down. ctx is the parent of the leader-scoped context; its end does not end leadership.
func newTenure(ctx context.Context, a *announcer, term Term, tm timing, sent, acknowledged time.Time, standDown time.Duration) *tenure {
	t := &tenure{
		timing:    tm,
		announcer: a,
		term:      term,
		ended:     make(chan struct{}),
		over:      make(chan struct{}),
		hold:      hold{revision: term.Number, sent: sent, counts: acknowledged.Add(standDown), pending: map[string]sentAt{}},
	}
	t.term.tenure = t
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.lease.Store(&lease{
		Lease: clocks.New(clocks.Of(sent), tm.leaseTime(), processStart, clocks.Read()),
		state: LeaderElectState, deadline: sent.Add(tm.leaseTime()),
	})
	t.next = t.due()
	t.mu.Lock() // the timer may fire before expiry is set
	defer t.mu.Unlock()
	t.expiry = time.AfterFunc(t.lease.Load().left(time.Now()), func() { t.end(reasonDeadline) })
	return t
}

// leads says whether leadership counts now. It is all that IsLeader and Valid do.
func (t *tenure) leads() bool {
	l := t.lease.Load()
	return l.state == LeaderState && l.holds(time.Now())
}

// number returns the number of the term as a renewal sent at the given time writes it: 0 while leadership does not count.
func (t *tenure) number(sent time.Time) uint64 {
	if !t.led && sent.Before(t.counts) {
		return 0
	}
	return t.term.Number
}

// holds says whether the lease on the key lasts, whether leadership counts or not.
func (t *tenure) holds() bool { return t.lease.Load().holds(time.Now()) }

// remaining returns what is left of the lease on the key; never less than 0.
func (t *tenure) remaining() time.Duration { return t.lease.Load().remaining(time.Now()) }

// overdue returns for how long the lease has been over; less than 0 if it is not.
func (t *tenure) overdue() time.Duration { return -t.lease.Load().left(time.Now()) }

// due returns when the next renewal is due if the last succeeded: one interval after it was sent or, for a leader-elect,
// at the end of the stand-down where that comes before, or so soon after that one renewal can serve for both.
func (t *tenure) due() time.Time {
	due := t.sent.Add(t.interval)
	if t.lease.Load().state == LeaderElectState && t.counts.Before(due.Add(t.slack())) {
		return t.counts
	}
	return due
}

// renewed extends the lease by a write that is known to have been applied, and lets leadership count from it if the
// stand-down is over. It returns false and changes nothing if the lease has run out: an acknowledgement after the
// deadline counts for nothing.
func (t *tenure) renewed(revision uint64, sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lease.Load()
	if !l.holds(time.Now()) {
		return false
	}
	next := l.renewed(sent, t.leaseTime())
	if l.state == LeaderElectState && !sent.Before(t.counts) {
		next.state = LeaderState
		t.led = true
	}
	t.lease.Store(next)
	t.expiry.Reset(next.left(time.Now()))
	t.revision, t.sent = revision, sent
	t.next = t.due()
	t.failures = 0
	clear(t.pending)
	return true
}

// nominate names who is to take over, unless one is named already.
func (t *tenure) nominate(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nominee != "" || t.lease.Load().state == CandidateState { // who has ended may be releasing already
		return false
	}
	t.nominee = name
	return true
}

// end ends leadership and says whether it was this call that did. If the reason is a voluntary one the lease goes on, so
// that nobody else leads while callbacks and work wind up; if not, the lease ends too, whoever ended leadership before.
func (t *tenure) end(why reason) bool {
	t.mu.Lock()
	l, now := t.lease.Load(), time.Now()
	if left := l.left(now); why == reasonDeadline && left > 0 { // it was renewed while the timer fired
		t.expiry.Reset(left)
		t.mu.Unlock()
		return false
	}
	next := *l
	if !why.voluntary() && l.holds(now) {
		next.Lease, next.deadline = clocks.Ended(clocks.Of(now)), now
	}
	next.state = CandidateState
	t.lease.Store(&next)
	first := l.state != CandidateState
	if first {
		t.reason = why
	}
	if !why.voluntary() {
		t.expiry.Stop()
	}
	t.mu.Unlock()

	if first {
		t.cancel(why.cause())
		t.announcer.leadership(t) // OnLost is owed before the loop may look whether anything is
		close(t.ended)
	}
	return first
}
