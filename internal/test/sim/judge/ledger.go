package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

// Reports is what a candidate reports of itself.
type Reports interface {
	State() election.State
	Term() (election.Term, bool)
	IsLeader() bool
}

// Candidate is what the judge must know of a candidate from the start.
type Candidate struct {
	Name      string
	Margin    time.Duration
	StandDown time.Duration
	Interval  time.Duration
	Clock     Clock
	Plain     bool // it writes bare names
	NoRead    bool // its reads of the key fail for good
	Connected bool // it knows its connection, and so how a record was stored
	Reports   Reports
	Notified  func() (last *Entry, at time.Time, previous *Entry) // what its watcher delivered; nil for nothing
}

// Ledger is the evidence about one candidate: what it wrote, read, was notified of, and reported.
type Ledger struct {
	Candidate
	ttl, longest time.Duration

	crashed  bool
	running  bool
	workQuit bool // its work returned by itself since the candidate was started
	mayEnd   bool // it was asked to stop or resign, or its work returned, since it last acquired the key

	term        *term  // since its last acknowledged acquisition
	revision    uint64 // of its last write that it knows to have been applied
	lastWrite   *Write // its last write that was applied
	lastRead    *Entry // the record that it last read
	readRemoval *Entry // the removal that it read, if it has read no record since
	known       map[termID]knowledge
	lastHeld    termID    // of the last record of a holder that it read or wrote
	abandonedAt time.Time // when it last released as leader-elect; then it leaves the key to others for a TTL
	statusAt    time.Time // when it last requested the state of the bucket

	rewoundAt     time.Time // when history was rewound over lastWrite; zero if it was not
	provableSince time.Time // since when each of its renewals would prove that; zero if they would not
	disprovedAt   time.Time // when it received proof that it lost the key; zero if it did not
	displacedAt   time.Time // when anything but a write of the same term last replaced its record
	troubledUntil time.Time // until when a fault affected its calls
	frozenUntil   time.Time // until when its process was stopped: it could do nothing
	gapAt         time.Time // when it last learned that it may have missed notifications
	closedAt      time.Time // when its connection was closed for good; zero if it was not
	sawClosedAt   time.Time // when a write of its own first failed for that reason; zero if none did

	heldTerm     *term         // the term in which it was last seen to hold the key; nil if it did not hold it then
	reportedTerm election.Term // its last report
	leads        bool          // its last report

	callback           string // the one that runs
	prepared           bool   // OnNext was called with true, and not with false since
	callbackReturnedAt time.Time
	won, lost          int   // how often OnWon was called and OnLost returned
	onWonTerm          *term // in which OnWon was last called
	working            int
	workTerm           election.Term
	workValid          func() bool // whether workTerm is valid
	workEnded          func() bool // whether the context of the work has ended
	outlivedAt         time.Time   // when that was found to outlive the term; zero if it was not
}

// Started takes note that the candidate starts.
func (l *Ledger) Started() { l.running, l.workQuit, l.readRemoval = true, false, nil }

// Asked takes note that the candidate is asked to give up the key, by a resignation or its end.
func (l *Ledger) Asked() { l.mayEnd = true }

// Crashed takes note that the candidate is gone: from now on it is not judged.
func (l *Ledger) Crashed() { l.crashed = true }

// Troubled takes note that a fault affects the calls of the candidate until the given time.
func (l *Ledger) Troubled(until time.Time) { l.troubledUntil = timeutil.Later(l.troubledUntil, until) }

// Frozen takes note that the process of the candidate is stopped until the given time.
func (l *Ledger) Frozen(until time.Time) { l.frozenUntil = timeutil.Later(l.frozenUntil, until) }

// Missed takes note that the candidate has learned that it may have missed notifications.
func (l *Ledger) Missed(at time.Time) { l.gapAt = at }

// Disconnected takes note that the connection of the candidate was closed for good.
func (l *Ledger) Disconnected(at time.Time) { l.closedAt = at }

// SawDisconnection takes note that a write failed for that reason.
func (l *Ledger) SawDisconnection(at time.Time) {
	if l.sawClosedAt.IsZero() {
		l.sawClosedAt = at
	}
}

// MayGiveUp reports whether the candidate may give up the key: it was asked to, or its work returned.
func (l *Ledger) MayGiveUp() bool { return l.mayEnd }

// LastAbandoned returns when the candidate last released the key as leader-elect; the zero time if it did not.
func (l *Ledger) LastAbandoned() time.Time { return l.abandonedAt }

// Busy reports whether work or callbacks of a term go on.
func (l *Ledger) Busy() bool { return l.working > 0 || l.won != l.lost || l.callback != "" }

// termID distinguishes the terms of candidates, by what records say of them. Those of bare names are all the same.
type termID struct {
	instance string
	since    time.Time
}

// knowledge is what a candidate knows of a term by records that it read.
type knowledge struct {
	since time.Time     // when it read the first
	lease time.Duration // the longest that one states
}

// termOf returns the term of a record.
func (c Content) termOf() termID { return termID{c.Instance, c.Since.Round(0)} }

// FirstRead returns when the candidate first read a record of the term in which an entry was written; the zero time if it did not.
func (l *Ledger) FirstRead(e *Entry) time.Time { return l.known[e.Write.Content.termOf()].since }

// knew reports whether the candidate had read, before it wrote, a record of the term in which a write was made that states a lease as long as
// that write does.
func (l *Ledger) knew(q, before *Write) bool {
	k := l.known[q.Content.termOf()]
	return q.Content.Instance != "" && !k.since.IsZero() && k.since.Before(before.Sent) && k.lease >= q.Content.lease()
}

// names reports whether a release names a candidate, as one that comes next or that waits.
func (c Content) names(name, instance string) bool {
	id := record.QueueID(instance)
	return slices.Contains(c.Successors, name) || slices.Contains(c.IDs, id) || slices.Contains(c.Queue, id)
}

func (c Content) lease() time.Duration { return time.Duration(c.LeaseMs) * time.Millisecond }

// term is a candidate's term by the evidence, from its acquisition on.
type term struct {
	win          *Write
	counts       time.Time // leadership counts from the first renewal sent at this time or later
	sawRemoval   bool      // the winner was notified that somebody removed the key
	deadline     time.Time
	lastDeadline time.Time // the deadline before the last renewal became known
	renewedAt    time.Time // when the last renewal became known
	sent         time.Time // when it was sent
	lastSent     time.Time // when the renewal before it was sent
	statusRead   bool      // the state of the bucket was requested in the instant of that renewal
	reported     bool      // the candidate reported that it holds the key
	over         bool      // it reported that it holds the key no longer, or released it
	mayLead      bool      // a write is known from which leadership counts
}

// deadlineOf returns the end of the lease that a write earns. Where the TTL of the bucket changes, the record states the lease.
func (l *Ledger) deadlineOf(q *Write) time.Time {
	longest := l.longest - l.Margin
	if l.longest > l.ttl && !l.Plain {
		longest = min(q.Content.lease(), longest)
	}
	return l.Clock.After(q.Sent, longest)
}

// acquires reports whether a write that was applied acquired the key for its writer, rather than renewed it.
func (l *Ledger) acquires(q *Write) bool {
	if l.Plain { // a bare name does not tell
		foreign := l.heldTerm == nil && q.Replaced != nil && (q.Replaced.Write == nil || q.Replaced.Write.By != l) // whatever its revision
		return q.Create || q.Expect != l.revision || l.term == nil || l.term.over || !q.Sent.Before(l.term.deadline) || foreign
	}
	return q.Create || q.Content.Since.Equal(l.Clock.Reads(q.Sent))
}

// renews reports whether a write belongs to the present term.
func (l *Ledger) renews(q *Write) bool {
	return l.term != nil && !q.givesUp() && !l.acquires(q) &&
		(l.Plain || q.Content.Since.Equal(l.term.win.Content.Since))
}

// meant returns the entry that the writer of an update meant to replace, as far as it knew one; otherwise nil.
func (q *Write) meant() *Entry {
	for _, e := range []*Entry{q.read, q.notified} {
		if e != nil && e.Revision == q.Expect && !q.Create {
			return e
		}
	}
	return nil
}

// isNamed reports whether an acquisition was meant for a release that a leader wrote in this bucket, and that names the winner: then the
// acquisition is the successful campaign from which leadership counts. After a reset or a rewind it may have hit another entry by chance.
func (l *Ledger) isNamed(q *Write) bool {
	old := cmp.Or(q.meant(), q.Replaced)
	return !l.Plain && (old.isRelease() || old.isStrangersRelease()) && old.Write.Content.StandDownMs == 0 &&
		old.Write.Content.names(l.Name, q.Content.Instance) && old.Write.Content.bucket().Equal(q.Content.bucket())
}

// takesOverLapsed reports whether a write took the key over from another instance whose lease from the write that was replaced was over, as its writer
// could know who had missed nothing for as long.
func (q *Write) takesOverLapsed() bool {
	old := q.Replaced
	if q.Content.Won != string(election.ReasonLapsed) || old == nil || old.Write == nil || old.Write.Content.Instance == q.Content.Instance {
		return false
	}
	lease, clock := min(old.Write.Content.lease(), old.Write.LongestTTL), Clock{} // a longer one is not believed
	if l := old.By(); l != nil {
		clock = l.Clock
	}
	return lease > 0 && !q.Sent.Before(clock.After(timeutil.Later(old.Write.Sent, q.gapAt), lease))
}

// requiredStandDown returns the stand-down that the contract demands after an acquisition, and whether the winner was
// notified of a removal.
func (l *Ledger) requiredStandDown(q *Write) (d time.Duration, sawRemoval bool) {
	old := q.Replaced
	if meant := q.meant(); meant != nil && meant != old {
		return 0, false // after a reset or a rewind, the write hit another entry with the same revision by chance
	}
	if old != nil && old.Write != nil && old.Write.Remove {
		removed := old.Write.Replaced
		switch {
		case q.readRemoval == old && old.Op == jetstream.KeyValueDelete:
			return max(l.StandDown, l.ttl), !removed.isRelease()
		case q.notified != old:
			return l.StandDown, false
		case removed.isRelease() && q.notifiedPrevious == removed:
			// The writer of a release mostly deletes it. The release counts.
		case old.Op == jetstream.KeyValueDelete && q.notifiedAt.Before(q.Sent):
			return max(l.StandDown, l.ttl), !removed.isRelease()
		default:
			return l.StandDown, false
		}
		old = removed
	}
	switch {
	case old.isRelease():
		left := min(time.Duration(old.Write.Content.StandDownMs)*time.Millisecond, max(l.StandDown, l.ttl))
		switch bucket := old.Write.Content.bucket(); {
		case l.Plain: // a bare name does not tell for which bucket its writer took this one
			return min(left, l.StandDown), false
		case bucket.Equal(q.Content.bucket()), bucket.Equal(q.BucketCreated):
			return left, false
		}
		return l.StandDown, false // a release written for an earlier incarnation of the bucket proves nothing
	case old != nil && old.Write != nil && old.Write.Copies:
		// Who has read a record of the term takes no release of a stranger's for its end. Others may be deceived; see Judge.excuse.
		if before := old.Write.Replaced; old.Write.Releases() && before.By() != nil && before.By() != l && l.lastHeld.instance != "" && l.lastHeld == before.Write.Content.termOf() {
			return l.ttl, false
		}
		return 0, false
	case q.takesOverLapsed():
		return min(time.Duration(old.Write.Content.StandDownMs)*time.Millisecond, max(l.StandDown, l.ttl)), false // see Judge.judgeOverlap for who leads all the same
	case old.By() != l || l.Plain:
		return l.StandDown, false
	case l.acquires(old.Write): // the candidate adopts its own late acquisition
		d, sawRemoval = l.requiredStandDown(old.Write)
	default: // … or its own late renewal
		d, sawRemoval = old.Write.standDownLeft, old.Write.sawRemoval
	}
	return max(l.StandDown, d), sawRemoval
}
