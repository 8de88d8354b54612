package core

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// recent is for how long after a read a notification of something older is taken for one that was in flight.
const recent = time.Second

// key is what a candidate knows of its key by reading, and by notifications where a mistake is safe.
type key struct {
	read     time.Time // when the key was read or written last; zero if it has not been
	revision uint64    // that was read or written then
	occupied bool      // a candidate held the key then
	holder   holder    // the last that was read or written; its priorities and successor are those of the latest renewal that was notified
	sign     sign      // the latest write that shows that the holder is there
	checked  time.Time // when the key was last read or written, or notified since it was first read
	highest  uint64    // the highest revision that was read or written in this bucket

	removal incident      // the last removal that was notified or read, until a later record is read
	passing incident      // the last release that passed on a stand-down, likewise
	passed  time.Duration // that stand-down

	// How the terms of the key ended, see [Candidate.proves].
	proven bool          // the term of the known holder has ended: its secret was seen, or it was this candidate's own
	until  time.Time     // by then the leases have ended of the holders before the known one; zero if their end was proven
	lease  time.Duration // the longest of these leases
}

// sign is a write of the holder's.
type sign struct {
	revision uint64
	attempt  uint64        // a hash of its id; 0 if something may have been missed since it was seen
	lease    time.Duration // the longest that a record of this term states which was read; 0 if none does
	at       time.Time     // when it was first read or notified
	since    time.Time     // the same, since when nothing may have been missed
	written  time.Time     // by the server's clock
	after    time.Time     // it was written after this, by this candidate's clock, as far as is known
}

// holder is what a candidate remembers of the holder of its key: a small part of the record, because a process may have thousands of
// candidates.
type holder struct {
	name, instance string
	since          time.Time
	term           uint64
	priority       int
	metadata       map[string]string
	intervalMs     int64
	leaseMs        int64
	priorities     []int
	successor      string
	commitment     record.Commitment
}

// holderOf returns the holder that wrote a record.
func holderOf(r *record.Record) holder {
	return holder{r.Name, r.Instance, r.Since, r.Term, r.Priority, r.Metadata, r.IntervalMs, r.LeaseMs, r.Priorities, r.Successor, r.Commitment}
}

// record returns a record of which the rest is empty. What the holder writes next renews it.
func (h *holder) record() record.Record {
	return record.Record{
		Name: h.name, Instance: h.instance, Since: h.since, Term: h.term, Priority: h.priority, Metadata: h.metadata, IntervalMs: h.intervalMs, LeaseMs: h.leaseMs,
		Priorities: h.priorities, Successor: h.successor, Commitment: h.commitment,
	}
}

// leaseTime returns how long the lease is that the holder's write earned; 0 if the record did not say.
func (h *holder) leaseTime() time.Duration { return record.Record{LeaseMs: h.leaseMs}.Lease() }

// incident is something that happened to the key; the zero value if it did not.
type incident struct {
	revision uint64
	at       time.Time // when this candidate learned of it
}

// outdatedBy reports whether what was read shows that the event does not matter any more. A read that is older may be stale.
func (e incident) outdatedBy(s *record.State) bool {
	return s.Revision > e.revision || s.Read.Sub(e.at) > recent
}

// passesOn takes note of the stand-down that a release passes on to the successor.
func (k *key) passesOn(r *record.Record, revision uint64, now time.Time) {
	if left, released := r.IsRelease(); released && left > 0 {
		k.passing, k.passed = incident{revision, now}, max(k.passed, left)
	}
}

// learn takes over what was read.
func (c *Candidate) learn(now time.Time, s *record.State) {
	k := &c.key
	if !c.unchanged(s) {
		c.turn.retries = 0
	}
	if s.Held() {
		lease := s.Record.Lease()
		if s.Record.SameTerm(k.holder.record()) {
			lease = max(lease, k.sign.lease)
		}
		c.noteBeginning(now, &s.Record, c.sawLastBefore(s))
		k.holder = holderOf(&s.Record)
		k.sign.saw(now, s, lease, c.bucket.TTL, k.checked)
		c.turn.afterExpiry = c.Random(c.bucket.Spread())
		if k.removal.outdatedBy(s) {
			k.removal = incident{}
		}
		if k.passing.outdatedBy(s) {
			k.passing, k.passed = incident{}, 0
		}
	}
	// The marker of a removal may have expired by the turn of this candidate. Without the connection that of an expiry looks the same.
	if s.Removal == record.Removed && c.Connected && s.Revision > k.removal.revision {
		k.removal = incident{s.Revision, now}
	}
	c.noteEnd(&s.Record)
	k.passesOn(&s.Record, s.Revision, s.Read)
	k.read, k.revision, k.occupied, c.hints.form = s.Read, s.Revision, s.Held(), 0
	k.checked = later(k.checked, s.Read)
	k.highest = max(k.highest, s.Revision)
	c.await(now, s.Revision)
	if c.hints.hint != nil && c.hints.hint.Revision <= s.Revision { // the hint came while the key was read
		c.hints.hint = nil
	}
}

// wrote takes note of a write of this candidate's own that was applied, on which it holds the key.
func (c *Candidate) wrote(now time.Time, revision uint64, r *record.Record) {
	k := &c.key
	if !c.isRenewal(r) {
		c.hints.form = 0
	}
	c.noteBeginning(now, r, r.Won == string(Lapsed) && c.mayTakeOver()) // it replaced that very write
	k.read, k.revision, k.occupied, k.holder, k.checked = now, revision, true, holderOf(r), now
	if revision < k.highest { // the history was rewound: what was reported before does not count
		c.hints.delivered = 0
	}
	k.highest = max(k.highest, revision)
	if revision > k.removal.revision {
		k.removal, k.passing, k.passed = incident{}, incident{}, 0
	}
	c.await(now, revision)
	if c.hints.hint == nil || c.hints.hint.Revision <= revision { // the write shows what a read would
		c.hints.readAt, c.hints.hint = time.Time{}, nil
	}
}

// forget has the candidate read the key again before it relies on what it knew.
func (c *Candidate) forget(now time.Time) {
	k := &c.key
	k.proven = k.proven || k.holder.instance == c.Instance // this candidate knows that its own lease is over
	k.read, k.revision, k.occupied = time.Time{}, 0, false
	c.hints.forget()
	c.hints.readAt = now
}

// recall has the candidate know of holders and their leases what it knew under another instance, which a copy of it may still have: so its
// own records of then are those of somebody else.
func (k *key) recall(before *key, instance string) {
	k.holder, k.until, k.lease, k.sign = before.holder, before.until, before.lease, before.sign
	k.sign.attempt = 0                                             // much may be missed
	k.proven = before.proven && before.holder.instance != instance // the holder may be the copy
	k.highest, k.removal, k.passing, k.passed = before.highest, before.removal, before.passing, before.passed
}

// isRenewal reports whether a record is a renewal by the known holder.
func (c *Candidate) isRenewal(r *record.Record) bool {
	return c.key.occupied && r.Renews(c.key.holder.record())
}

// unchanged reports whether what was read differs from what was known by renewals alone.
func (c *Candidate) unchanged(s *record.State) bool {
	switch {
	case c.key.read.IsZero(), s.Held() != c.key.occupied:
		return false
	case c.key.occupied:
		return c.isRenewal(&s.Record)
	}
	return s.Revision == c.key.revision
}

// isHolder reports whether this candidate holds the key, as far as is known.
func (c *Candidate) isHolder() bool { return c.key.occupied && c.key.holder.instance == c.Instance }

// isRewound reports whether a revision is below one that was read or written before: the history was rewound, unless the read is stale.
func (c *Candidate) isRewound(revision uint64) bool { return revision < c.key.highest }

// predecessorOf returns the record of the holder before a vacancy: the release, or else what is remembered of the last holder.
func (c *Candidate) predecessorOf(removal record.Removal, release *record.Record) record.Record {
	if removal == record.Kept {
		return *release
	}
	return c.key.holder.record()
}

// Terms end by a release, or without one. A release proves that the lease of its writer is over and its work has ended: but anybody can write
// what looks like one who gets a process that may write the key to publish given bytes there, such as a program that answers with what it
// is asked. So each term commits itself to a secret, and only its holder can reveal it. A candidate that has read a record of a term takes
// nothing for its release that does not open the commitment.
//
// Commitments are believed only as they were read from the bucket. A secret proves itself, wherever it was seen.

// noteBeginning takes note of a record by which somebody holds the key, before the record replaces the known holder's. If nothing proves that the
// term of the known holder has ended, its lease may last for its whole length from now: its holder can have renewed it until the record was
// written. It cannot have done so later than by the write that this candidate saw last, if that was certainly the last.
func (c *Candidate) noteBeginning(now time.Time, r *record.Record, sawLast bool) {
	k, before := &c.key, c.key.holder.record()
	if k.holder.name == "" || r.SameTerm(before) {
		return
	}
	if !k.proven && k.holder.instance != c.Instance && !r.Follows(before.Commitment) {
		if now.After(k.until) {
			k.lease = 0
		}
		ends := now.Add(c.bucket.mostLeft(before.Lease()))
		if sawLast {
			ends = now.Add(c.lapseTime() - leastPassed(k.sign.since, now))
		}
		if ends.After(now) {
			k.until, k.lease = later(k.until, ends), max(k.lease, before.Lease(), c.bucket.TTL)
		}
	}
	k.proven = false
}

// noteEnd takes note of a record that was read or notified, if it is a release: of the known holder or of one after it.
func (c *Candidate) noteEnd(r *record.Record) {
	if !r.Released.IsZero() && (c.key.holder.commitment.OpenedBy(r.Secret) || r.Follows(c.key.holder.commitment)) {
		c.key.proven = true
	}
}

// proves reports whether the release that was read proves that its term has ended, and that no other lease lasts but those of leftBefore.
//
// Every release must open its own commitment, and must have been stored on condition that it replaced another revision, as candidates write
// and as no answer does that somebody had sent to the key. If this candidate has read a record of the term that states a commitment, the release must
// open that one. Otherwise there is nothing to compare: the candidate has just started, or it has missed a term that began after the last
// known one had ended, or the holder writes bare names. Such a release is taken all the same, so that a service that restarts alone leads
// again at once, and so does the next that takes a lock. This is weaker: one who can have a process write the key with headers of their own
// choice can forge such a release, and deceive a candidate that has read nothing of the term. The alternative is to wait for a whole lease
// at each start.
func (c *Candidate) proves(s *record.State) bool {
	r, known := &s.Record, c.key.holder.commitment
	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {
		return false
	}
	return r.Commitment == known || known == (record.Commitment{}) || c.key.proven || r.Follows(known)
}

// longestLease returns the longest lease that may last still, as far as is known: of the known holder, unless it is proven to have ended, and
// of the holders before it whose end nothing proves.
func (c *Candidate) longestLease(now time.Time) (longest time.Duration) {
	if now.Before(c.key.until) {
		longest = c.key.lease
	}
	if c.mayLast() {
		longest = max(longest, c.key.holder.leaseTime())
	}
	return longest
}

// mayLast reports whether the lease of the known holder may last still.
func (c *Candidate) mayLast() bool { return !c.key.proven && c.key.holder.instance != c.Instance }

// leftBefore returns how long leases may last of the holders before the known one, whose record may be none of a holder.
func (c *Candidate) leftBefore(now time.Time) time.Duration { return max(0, c.key.until.Sub(now)) }

// leftAtMarker returns how long the lease of the known holder may last where a marker was stored at the given time of the server: since the holder
// was last known to be there. A server never expires a key early. So where the marker came sooner than a TTL after the holder's last write it is
// none of an expiry, or the bucket's TTL was made shorter.
func (c *Candidate) leftAtMarker(now, stored time.Time) time.Duration {
	lease := c.key.holder.leaseTime()
	if !c.mayLast() || stored.Sub(c.key.sign.written) >= max(c.bucket.TTL, lease) {
		return 0
	}
	return max(0, c.key.sign.at.Add(c.bucket.mostLeft(lease)).Sub(now))
}

// vanishedEarly reports whether a key under which nothing is stored, now, was removed for sure: the lease of the known holder lasts by its last
// write that is known, so that the key cannot have expired. A roll-up or a purge of the stream leaves no marker. An expiry does for markerTTL; that is
// 0 if the candidate would not see one.
func (c *Candidate) vanishedEarly(now time.Time, markerTTL time.Duration) bool {
	ttl := c.bucket.TTL
	return c.key.holder.name != "" && c.mayLast() && now.Before(c.key.sign.after.Add(min(ttl, cmp.Or(c.key.holder.leaseTime(), ttl))+markerTTL))
}

// wasRemovedBefore reports whether a marker of an expiry that was read may be that of the marker of a removal, which was stored for less than a lease.
func (c *Candidate) wasRemovedBefore(now time.Time, s *record.State) bool {
	k := &c.key
	return s.Removal == record.Expired && k.removal.revision > 0 && now.Before(k.removal.at.Add(c.bucket.mostLeft(k.holder.leaseTime())))
}

// outlived reports whether somebody else holds the key by a write that should have expired by now.
func (c *Candidate) outlived(now time.Time) bool {
	return c.key.occupied && !c.isHolder() && now.Sub(c.key.sign.at) >= c.bucket.TTL+timing.ExpiryLateness
}
