package sim

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// reports is what a candidate reports of itself.
type reports interface {
	State() election.State
	Term() (election.Term, bool)
	IsLeader() bool
}

// ledger is the evidence about one candidate: what it wrote, read, was notified of, and reported.
type ledger struct {
	name      string
	reports   reports
	ttl       time.Duration
	margin    time.Duration
	standDown time.Duration
	interval  time.Duration
	plain     bool
	noRead    bool
	notified  func() (last *entry, at time.Time, previous *entry) // what its watcher delivered

	crashed  bool
	running  bool
	workQuit bool // its work returned by itself since the candidate was started
	mayEnd   bool // it was asked to stop or resign, or its work returned, since it last acquired the key

	term        *term     // since its last acknowledged acquisition
	revision    uint64    // of its last write that it knows to have been applied
	lastWrite   *write    // its last write that was applied
	lastRead    *entry    // the record that it last read
	abandonedAt time.Time // when it last released as leader-elect; then it leaves the key to others for a TTL
	statusAt    time.Time // when it last requested the state of the bucket

	rewoundAt     time.Time // when history was rewound over lastWrite; zero if it was not
	provableSince time.Time // since when each of its renewals would prove that; zero if they would not
	disprovedAt   time.Time // when it received proof that it lost the key; zero if it did not
	displacedAt   time.Time // when anything but a write of the same term last replaced its record
	troubledUntil time.Time // until when a fault affected its calls
	closedAt      time.Time // when its connection was closed for good; zero if it was not
	sawClosedAt   time.Time // when a write of its own first failed for that reason; zero if none did

	heldTerm     *term         // the term in which it was last seen to hold the key; nil if it did not hold it then
	reportedTerm election.Term // its last report
	leads        bool          // its last report

	callback           string // the one that runs
	callbackReturnedAt time.Time
	won, lost          int   // how often OnWon was called and OnLost returned
	onWonTerm          *term // in which OnWon was last called
	working            int
	workTerm           election.Term
	workValid          func() bool // whether workTerm is valid
	workCtx            context.Context
	outlivedAt         time.Time // when workCtx was found to outlive the term; zero if it was not
}

// isLateReleaseOver reports whether an entry is a release that was sent before the write of the same candidate that it replaced: it is of
// an earlier term and was applied late, and anybody may take the key over it.
func (e *entry) isLateReleaseOver(before *entry) bool {
	return e.isRelease() && e.by() == before.by() && e.write.sent.Before(before.write.sent)
}

// term is a candidate's term by the evidence, from its acquisition on.
type term struct {
	win          *write
	counts       time.Time // leadership counts from the first renewal sent at this time or later
	sawRemoval   bool      // the winner was notified that somebody removed the key
	deadline     time.Time
	lastDeadline time.Time // the deadline before the last renewal became known
	renewedAt    time.Time // when the last renewal became known
	statusRead   bool      // the state of the bucket was requested in the instant of that renewal
	reported     bool      // the candidate reported that it holds the key
	over         bool      // it reported that it holds the key no longer, or released it
	mayLead      bool      // a write is known from which leadership counts
}

// standDownOf, intervalOf and marginOf return what an option of the plan means on a bucket with the given TTL.
func (p *plan) standDownOf(ttl time.Duration) time.Duration {
	if p.standDown < 0 {
		return p.intervalOf(ttl)
	}
	return p.standDown
}

func (p *plan) intervalOf(ttl time.Duration) time.Duration {
	if p.interval < 0 {
		return ttl * 3 / 4
	}
	return p.interval
}

func (p *plan) marginOf(ttl time.Duration) time.Duration {
	if p.margin < 0 {
		return max(50*time.Millisecond, ttl/50)
	}
	return p.margin
}

// deadlineOf returns the end of the lease that a write earns.
func (l *ledger) deadlineOf(q *write) time.Time { return q.sent.Add(l.ttl - l.margin) }

// acquires reports whether a write that was applied acquired the key for its writer, rather than renewed it.
func (l *ledger) acquires(q *write) bool {
	if l.plain { // a bare name does not tell
		foreign := l.heldTerm == nil && q.replaced != nil && q.replaced.write != nil && q.replaced.write.by != l // whatever its revision
		return q.create || q.expect != l.revision || l.term == nil || l.term.over || !q.sent.Before(l.term.deadline) || foreign
	}
	return q.create || q.content.Since.Equal(q.sent)
}

// renews reports whether a write belongs to the present term.
func (l *ledger) renews(q *write) bool {
	return l.term != nil && !q.givesUp() && !l.acquires(q) &&
		(l.plain || q.content.Since.Equal(l.term.win.content.Since))
}

// meant returns the entry that the writer of an update meant to replace, as far as it knew one; otherwise nil.
func (q *write) meant() *entry {
	for _, e := range []*entry{q.read, q.notified} {
		if e != nil && e.revision == q.expect && !q.create {
			return e
		}
	}
	return nil
}

// isNamed reports whether an acquisition replaced a release that a leader wrote in this bucket, and that names the winner: then the
// acquisition is the successful campaign from which leadership counts.
func (l *ledger) isNamed(q *write) bool {
	old := q.replaced
	return !l.plain && old.isRelease() && (q.meant() == nil || q.meant() == old) && old.write.content.StandDownMs == 0 &&
		slices.Contains(old.write.content.Successors, l.name) && old.write.content.Bucket.Equal(q.content.Bucket)
}

// requiredStandDown returns the stand-down that the contract demands after an acquisition, and whether the winner was
// notified of a removal.
func (l *ledger) requiredStandDown(q *write) (d time.Duration, sawRemoval bool) {
	old := q.replaced
	if meant := q.meant(); meant != nil && meant != old {
		return 0, false // after a reset or a rewind, the write hit another entry with the same revision by chance
	}
	if old != nil && old.write != nil && old.write.remove {
		removed := old.write.replaced
		switch {
		case q.notified != old:
			return l.standDown, false
		case removed.isRelease() && q.notifiedPrevious == removed:
			// The writer of a release mostly deletes it. The release counts.
		case old.op == jetstream.KeyValueDelete && q.notifiedAt.Before(q.sent):
			return max(l.standDown, l.ttl), !removed.isRelease()
		default:
			return l.standDown, false
		}
		old = removed
	}
	switch {
	case old.isRelease():
		left := min(time.Duration(old.write.content.StandDownMs)*time.Millisecond, max(l.standDown, l.ttl))
		switch bucket := old.write.content.Bucket; {
		case l.plain: // a bare name does not tell for which bucket its writer took this one
			return min(left, l.standDown), false
		case bucket.Equal(q.content.Bucket), bucket.Equal(q.bucketCreated):
			return left, false
		}
		return l.standDown, false // a release written for an earlier incarnation of the bucket proves nothing
	case old.by() != l || l.plain:
		return l.standDown, false
	case l.acquires(old.write): // the candidate adopts its own late acquisition
		d, sawRemoval = l.requiredStandDown(old.write)
	default: // … or its own late renewal
		d, sawRemoval = old.write.standDownLeft, old.write.sawRemoval
	}
	return max(l.standDown, d), sawRemoval
}
