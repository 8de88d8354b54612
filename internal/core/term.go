package core

import (
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// A term, its lease, and what ends leadership.
//
// A term begins with the write that won the key, and is over when the key is released or lost. Leadership is a part of the term: it begins
// when it counts, see beginToLead, and ends by endLeadership, once, whatever the reason. After a voluntary end the candidate still holds the key
// and renews it while callbacks and work return, see releasing.go; after any other end the lease is over too.

// Term is a candidate's hold on the key, from the write that won it to its release or loss. Leadership is ended by what comes first, see
// Reason. No renewal restores leadership.
type Term struct {
	Number        uint64    // the revision of the write that won
	BucketCreated time.Time // when the bucket was created in which the term was won, as its server said then
	Since         time.Time // just before the write that won was sent
	Lease         *Lease    // never nil; every change makes a new one, but a session renews those of all its terms at once
	Reason        Reason    // why leadership ended; "" before
	LostBy        Reason    // why the key was lost after leadership had ended; "" if it was not
	LedSince      time.Time // since when leadership counts, or did: when the renewal was sent by which it did, or the write that won; zero before
	Outcome       Ending    // once the term is over

	StandDown time.Duration // from the acknowledgement of the win
	Because   string        // why it stands down, for people
	LeadsFrom time.Time     // the end of the stand-down: leadership counts from the first renewal sent at this time or later; see correct
	AtOnce    bool          // leadership counts from the write that won

	revision    uint64             // of our last write that is known to have been applied
	sent        time.Time          // just before that write was sent
	statedLease time.Duration      // the lease that the record of that write states; 0 if none
	renewAt     time.Time          // when to renew, or to try again
	renewSoon   bool               // a renewal has something new to write
	regular     time.Time          // when that was due before a newcomer brought it forward: it does not delay the next renewal
	failures    int                // tries that failed in a row
	won         Reason             // over what the key was won
	wonAt       lease.Moment       // when the win was acknowledged
	target      record.Successor   // the candidate that a transfer named
	successors  []record.Successor // the candidates that were known when the key was won
	priorities  []int              // the highest of their priorities

	secret       record.Secret  // that the release reveals
	predecessors record.Secrets // of the terms before, the last first, that ended by a release

	// Whether this is still the bucket in which the term was won, see mayBeElsewhere and renewing.extend.
	bucketInDoubt        bool      // it may be another bucket
	bucketReported       time.Time // when the bucket was created, as its server said last; some servers report a later time after a restart
	reportedSince        time.Time // when the renewal was sent after which the server reported that time
	sameBucketAt         time.Time // just before the last read that showed our last write in the bucket
	reconnects           uint64    // how often the connection had been made again by the last renewal
	sameBucketReconnects uint64    // the same number, when the bucket was last known to be the same

}

// Lease is what the holder of the key may consider itself, and until when. It is immutable, but that of a session's term lasts as long as its session does.
type Lease struct {
	lease.Lease
	Timing   *timing.Timing
	State    State                  // LeaderElect, Leader, or Follower once leadership has ended
	Deadline time.Time              // with its monotonic reading; it is right while both clocks of time.Now agree
	Session  *atomic.Pointer[Lease] // the lease of the term's session as it was renewed last, which says until when; nil if no session leads the key
}

// Last returns the lease as it was renewed last, which nothing changes any more.
func (l *Lease) Last() *Lease {
	if l.Session == nil {
		return l
	}
	last := *l.Session.Load()
	last.State = l.State
	return &last
}

// Left returns what is left of the lease at now, by the rule of package internal/lease; 0 or less once the lease is over.
func (l *Lease) Left(now time.Time, boot lease.Clock) time.Duration {
	if l.Session != nil {
		l = l.Session.Load()
	}
	return l.Lease.Left(lease.Of(now), boot)
}

// CutShort returns l as Last returns it, with the lease ended at now unless it had run out before.
func (l *Lease) CutShort(now time.Time, boot lease.Clock) *Lease {
	cut := *l.Last()
	if cut.Left(now, boot) > 0 {
		cut.Lease, cut.Deadline = lease.Ended(lease.Of(now)), now
	}
	return &cut
}

// Ends returns the instant at which the lease ends, as it appears at now.
func (l *Lease) Ends(now time.Time, boot lease.Clock) time.Time {
	if l = l.Last(); l.Agreed(lease.Of(now)) {
		return l.Deadline
	}
	return now.Add(l.Left(now, boot))
}

// Secret returns the secret that the release of the term reveals. It is for the term's witness: a process that knows the secret can release the
// term.
func (t *Term) Secret() record.Secret { return t.secret }

// left returns what is left of the lease on the key; 0 or less once it is over.
func (c *Candidate) left(now time.Time, t *Term) time.Duration { return t.Lease.Left(now, c.Boot) }

// lasts reports whether the lease on the key lasts.
func (c *Candidate) lasts(now time.Time, t *Term) bool { return c.left(now, t) > 0 }

// newTerm returns the term that a write won which was acknowledged just now.
func (c *Candidate) newTerm(now time.Time, a *acquisition) *Term {
	length, standDown := earned(&c.bucket.Timing, a.written.Lease()), a.standDown(&c.bucket)
	b := c.bucket.Timing // which the term keeps: other durations reach it by adapt
	t := &Term{
		Number: a.revision, BucketCreated: c.bucket.Created, Since: a.sent.Round(0), StandDown: standDown, Because: a.because(&c.bucket), LeadsFrom: a.acknowledged.Add(standDown),
		AtOnce:   a.written.Leads && standDown == 0 && a.verified(&c.bucket) && !c.bucket.Created.IsZero() && c.hints.bucketCreated.Equal(c.bucket.Created),
		revision: a.revision, sent: a.sent, statedLease: a.written.Lease(), won: a.reason, wonAt: c.moment(a.acknowledged), successors: a.successors, priorities: a.priorities,
		secret: c.secret, predecessors: a.predecessors, bucketReported: c.bucket.Created, reconnects: a.reconnects, sameBucketReconnects: a.reconnects,
	}
	t.Lease = &Lease{
		Lease:  lease.New(lease.Of(a.sent), length, c.Started, c.Clocks()),
		Timing: &b, State: LeaderElect, Deadline: a.sent.Add(length),
	}
	t.renewAt = t.due()
	c.untilNext = t.renewAt.Sub(now)
	return t
}

// earned returns the length of the lease that a write earns, if its record states the given length; 0 if it states none. A lease is never longer
// than its record states, because other candidates time it by that, even if the bucket's TTL has become longer since.
func earned(b *timing.Timing, stated time.Duration) time.Duration {
	if stated > 0 {
		return min(stated, b.LeaseTime())
	}
	return b.LeaseTime()
}

// Led reports whether leadership has counted.
func (t *Term) Led() bool { return !t.LedSince.IsZero() }

// number returns the number of the term as a renewal sent at the given time writes it: 0 while leadership does not count.
func (t *Term) number(sent time.Time) uint64 {
	if !t.Led() && (sent.Before(t.LeadsFrom) || t.Lease.State == Follower) {
		return 0
	}
	return t.Number
}

// due returns when the next renewal is due if the last one succeeded: one interval after the last one was sent. For a leader-elect it is due at
// the end of the stand-down, if that comes before or so soon after that one renewal can serve for both. If the bucket's TTL has become longer
// since the last renewal, the lease is shorter than the interval is meant for, and the interval is shortened in proportion.
func (t *Term) due() time.Time {
	durations, part := t.Lease.Timing, 1.0
	if length := t.Lease.Deadline.Sub(t.sent); length < durations.LeaseTime() {
		part = float64(length) / float64(durations.LeaseTime())
	}
	due := t.sent.Add(time.Duration(part * float64(durations.Interval)))
	if t.Lease.State == LeaderElect && t.LeadsFrom.Before(due.Add(time.Duration(part*float64(durations.Slack())))) {
		return t.LeadsFrom
	}
	return due
}

// coalescedPart bounds by how much a renewal is brought forward, to be made together with others: one of so many parts of the interval.
const coalescedPart = 64

// coalesce brings the next renewal of a leader forward to a time at which other leaders of this process renew too. In a process with a thousand
// leaders, waking up for each renewal costs more than the renewals do.
func (c *Candidate) coalesce(t *Term) {
	if part := int64(t.Lease.Timing.Interval / coalescedPart); t.Lease.State == Leader && part > 0 {
		t.renewAt = t.renewAt.Add(-time.Duration((t.renewAt.UnixNano() + int64(c.Seed%uint64(time.Hour))) % part))
	}
}

// correct puts the end of a stand-down off by as much as the clock of this candidate was slewed ahead since the win: its clock and that of a leader that is
// cut off may be slewed in opposite directions.
func (c *Candidate) correct(now time.Time, t *Term) {
	if t.Lease.State != LeaderElect || !t.wonAt.Unslewed {
		return
	}
	to := c.moment(now)
	gained := to.Slewed - t.wonAt.Slewed
	if !to.Unslewed {
		gained = timing.Ahead(t.StandDown) // at most
	}
	if gained > slewPrecision {
		t.LeadsFrom = t.wonAt.At.Add(t.StandDown + gained)
	}
}

// extend extends the lease by a write that is known to have been applied, and lets leadership count from it if the stand-down is over.
// It changes nothing if the lease has run out: an acknowledgement after the deadline counts for nothing.
func (c *Candidate) extend(now time.Time, t *Term, revision uint64, stated time.Duration, sent time.Time) (extended, begins bool) {
	if !c.lasts(now, t) {
		return false, false
	}
	l := t.Lease.renewed(sent, earned(t.Lease.Timing, stated), c.Clocks())
	begins = l.State == LeaderElect && !sent.Before(t.LeadsFrom)
	if begins {
		l.State = Leader
	}
	t.Lease, t.revision, t.sent, t.statedLease, t.failures = l, revision, sent, stated, 0
	if t.renewAt = t.due(); t.regular.After(sent) {
		t.renewAt = earlier(t.renewAt, t.regular)
	}
	return true, begins
}

// renewed returns the lease that an acknowledged write has earned, which was sent at the given time.
func (l *Lease) renewed(sent time.Time, length time.Duration, now lease.Reading) *Lease {
	next := *l
	next.Lease, next.Deadline = l.Renew(lease.Of(sent), length, now), sent.Add(length)
	return &next
}

// adapt takes over new durations after the bucket's TTL has changed. If they make the lease shorter, it is cut at once, because the server now
// expires the key sooner. A longer lease must be earned by the next renewal.
func (c *Candidate) adapt(now time.Time, t *Term) {
	before, durations := t.Lease.Timing, c.bucket.Timing
	if *before == durations {
		return
	}
	l := *t.Lease
	if l.Timing = &durations; durations.LeaseTime() < before.LeaseTime() && c.lasts(now, t) {
		l = *l.renewed(t.sent, earned(&durations, t.statedLease), c.Clocks())
	}
	t.Lease = &l
	t.renewAt = earlier(t.renewAt, t.due())
}

// beginToLead reports that leadership counts from now on.
func (c *Candidate) beginToLead(t *Term) {
	t.LedSince = t.sent.Round(0)
	c.termsLed++
	c.stateChanged(Leader, StoodDown, t)
	c.report(Event{Kind: LeadershipCounts, Term: t})
}

// endLeadership ends leadership, and reports whether it was this call that did. If the reason is voluntary, the lease goes on, so that no other
// candidate leads while callbacks and work return. If not, the lease ends too, even if leadership had ended before.
func (c *Candidate) endLeadership(now time.Time, t *Term, why Reason) bool {
	if why == Deadline && c.lasts(now, t) { // it was renewed while the timer fired
		return false
	}
	first := t.Lease.State != Follower
	if !first && (why.Voluntary() || !c.lasts(now, t)) {
		return false
	}
	if !why.Voluntary() {
		t.Lease = t.Lease.CutShort(now, c.Boot)
	}
	ended := *t.Lease
	ended.State = Follower
	t.Lease = &ended
	switch {
	case first:
		t.Reason = why
	case t.LostBy == "" && t.Reason.Voluntary():
		t.LostBy = why
	}
	return first
}

// Handover names the candidate that is to take over the key, and ends leadership for the given reason. It is refused if the term has been lost,
// and then returns the reason for that, or if another handover or release has begun, and then returns no reason.
func (c *Candidate) Handover(now time.Time, t *Term, target record.Successor, why Reason) (reason Reason, refused bool) {
	ended := t.Lease.State == Follower
	switch {
	case ended && t.LostBy != "":
		return t.LostBy, true
	case ended && !t.Reason.Voluntary():
		return t.Reason, true
	case ended, t.target.Name != "": // a term that has ended may be releasing already
		return "", true
	}
	t.target = target
	c.endLeadership(now, t, why)
	c.waitAnew(now)
	return "", false
}
