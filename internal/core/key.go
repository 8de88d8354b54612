package core

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// What a candidate knows of its key, and how long other candidates may still consider themselves leader.
//
// Two questions are answered here. First, who holds the key, and which write of the holder was seen last: lapse.go times the lease by that
// write. Second, when a candidate takes the key, which earlier leases may still last: the winner stands down for them, see
// [acquisition.standDown]. A lease that has not run out counts as over only if something proves it, see [Candidate.proves].
//
// The "known holder" is the last candidate that was read or written as the holder. "Earlier holders" led before the known holder.

// recent is for how long after a read a notification of something older is taken for one that was in flight.
const recent = time.Second

// key is what a candidate knows of its key: from reads and its own writes, and from notifications only where a mistake does no harm.
type key struct {
	read         time.Time   // when the key was last read or written; zero if it has not been
	revision     uint64      // the revision that was read or written then
	occupied     bool        // a candidate held the key then
	holder       holder      // the known holder; its priorities, successor and standbys are those of the latest renewal that was notified
	lastWrite    holderWrite // the write of the known holder that was seen last
	stamped      time.Time   // the latest stamp of a write of the known holder, as read or notified; a forged one only makes a stand-down longer
	lastEvidence time.Time   // when the key was last read or written, or a notification came after the first read
	highest      uint64      // the highest revision that was read or written in this bucket

	removal         incident      // the last removal that was notified or read, until a later record is read
	passedOn        incident      // the last release that passed on a stand-down, until a later record is read
	passedStandDown time.Duration // the longest stand-down that was passed on

	// What proves that leases have ended, see [Candidate.proves].
	holderEnded   bool          // the term of the known holder is proven to have ended: its secret was seen, or it was this candidate's own
	unprovenUntil time.Time     // leases of earlier holders whose end nothing proves may last until then; zero if there are none
	unprovenLease time.Duration // the longest of these leases
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
	standbys       int
	commitment     record.Commitment
}

// holderOf returns the holder that wrote a record.
func (c *Candidate) holderOf(now time.Time, r *record.Record) holder {
	lease := record.Milliseconds(c.believed(now, r))
	return holder{r.Name, r.Instance, r.Since, r.Term, r.Priority, r.Metadata, r.IntervalMs, lease, r.Priorities, r.Successor, r.Standbys, r.Commitment}
}

// record returns the holder as a record whose other fields are empty. The holder's next renewal renews that record, see record.Renews.
func (h *holder) record() record.Record {
	return record.Record{
		Name: h.name, Instance: h.instance, Since: h.since, Term: h.term, Priority: h.priority, Metadata: h.metadata, Commitment: h.commitment,
		IntervalMs: h.intervalMs, LeaseMs: h.leaseMs, Priorities: h.priorities, Successor: h.successor, Standbys: h.standbys,
	}
}

// leaseTime returns how long the lease is that the holder's write earned; 0 if the record did not say.
func (h *holder) leaseTime() time.Duration { return record.Record{LeaseMs: h.leaseMs}.Lease() }

// incident is something that happened to the key; the zero value if it did not.
type incident struct {
	revision uint64
	at       time.Time // when this candidate learned of it
}

// outdatedBy reports whether a read shows that the incident does not matter any more: the read is newer, by its revision or its time. A read
// that is neither may be stale.
func (e incident) outdatedBy(s *record.State) bool {
	return s.Revision > e.revision || s.Read.Sub(e.at) > recent
}

// notePassedOn takes note of the stand-down that a release passes on to the successor.
func (k *key) notePassedOn(r *record.Record, revision uint64, now time.Time) {
	if left, released := r.IsRelease(); released && left > 0 {
		k.passedOn, k.passedStandDown = incident{revision, now}, max(k.passedStandDown, left)
	}
}

// learn takes over what was read. The order matters: noteNewTerm compares the record with the known holder before it is replaced.
func (c *Candidate) learn(now time.Time, s *record.State) {
	k := &c.key
	if !c.unchanged(s) {
		c.turn.retries = 0
	}
	if s.Held() {
		lease, sameTerm := c.believed(now, &s.Record), s.Record.SameTerm(k.holder.record())
		c.noteNewTerm(now, &s.Record, c.replacedLast(s))
		if sameTerm {
			lease = max(lease, k.lastWrite.lease)
		} else {
			k.stamped = time.Time{}
			if c.Order == ByRank { // the new leader may not know this candidate
				c.others.announced = time.Time{}
			}
		}
		k.holder, k.lastWrite.lease = c.holderOf(now, &s.Record), lease
		if !sameTerm || !k.lastWrite.overtook(s) {
			c.noteHolderWrite(now, s.Revision, s.Written, later(k.lastEvidence, s.Read.Add(-c.bucket.TTL)), true) // an older write would have expired
		}
		c.turn.afterExpiry = c.Random(c.bucket.Spread())
		if k.removal.outdatedBy(s) {
			k.removal = incident{}
		}
		if k.passedOn.outdatedBy(s) {
			k.passedOn, k.passedStandDown = incident{}, 0
		}
	}
	switch {
	case s.Removal == record.Removed && c.Connected && s.Revision > k.removal.revision:
		// Its marker may have expired by the turn of this candidate. Without the connection the marker of an expiry looks the same.
		k.removal = incident{s.Revision, now}
	case s.Removal == record.Expired && s.Revision == k.removal.revision:
		k.removal = incident{} // it was no removal, although a watcher could not tell
	}
	c.noteRelease(&s.Record)
	k.notePassedOn(&s.Record, s.Revision, s.Read)
	k.read, k.revision, k.occupied, c.hints.fingerprint = s.Read, s.Revision, s.Held(), 0
	k.lastEvidence = later(k.lastEvidence, s.Read)
	k.highest = max(k.highest, s.Revision)
	c.expectReport(now, s.Revision)
	if c.hints.hint != nil && c.hints.hint.Revision <= s.Revision { // the hint came while the key was read
		c.hints.hint = nil
	}
}

// wrote takes note of a write of this candidate's own that was applied, on which it holds the key.
func (c *Candidate) wrote(now time.Time, revision uint64, r *record.Record) {
	k := &c.key
	if !c.isRenewal(r) {
		c.hints.fingerprint = 0
	}
	c.noteNewTerm(now, r, r.Won == string(Lapsed) && c.mayTakeOver()) // it replaced that very write
	k.read, k.revision, k.occupied, k.holder, k.lastEvidence = now, revision, true, c.holderOf(now, r), now
	if revision < k.highest { // the history was rewound: what was reported before does not count
		c.hints.delivered = 0
	}
	k.highest = max(k.highest, revision)
	if revision > k.removal.revision {
		k.removal, k.passedOn, k.passedStandDown = incident{}, incident{}, 0
	}
	c.expectReport(now, revision)
	if c.hints.hint == nil || c.hints.hint.Revision <= revision { // the write shows what a read would
		c.hints.readAt, c.hints.hint = time.Time{}, nil
	}
}

// forget has the candidate read the key again before it relies on what it knew.
func (c *Candidate) forget(now time.Time) {
	k := &c.key
	k.holderEnded = k.holderEnded || k.holder.instance == c.Instance // this candidate knows that its own lease is over
	k.read, k.revision, k.occupied = time.Time{}, 0, false
	c.hints.forget()
	c.hints.readAt = now
}

// carryOver takes over, into the knowledge of a new run, what was known of holders and their leases before. instance is the one that this
// candidate gives up to a copy of itself, "" if it keeps its own: from now on, records of that instance are those of another candidate.
func (k *key) carryOver(before *key, instance string) {
	k.holder, k.unprovenUntil, k.unprovenLease, k.lastWrite = before.holder, before.unprovenUntil, before.unprovenLease, before.lastWrite
	k.lastWrite.timedFrom, k.stamped = lease.Moment{}, before.stamped        // writes may be missed from now on
	k.holderEnded = before.holderEnded && before.holder.instance != instance // the holder may be the copy
	k.highest, k.removal, k.passedOn, k.passedStandDown = before.highest, before.removal, before.passedOn, before.passedStandDown
}

// isRenewal reports whether a record is a renewal by the known holder.
func (c *Candidate) isRenewal(r *record.Record) bool {
	return c.key.occupied && r.Renews(c.key.holder.record())
}

// unchanged reports whether a read shows nothing new, or only renewals by the known holder.
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

// How a release proves that a term has ended.
//
// A release says that its writer's lease is over and its work has ended. But a release can be forged by anybody who gets a process with
// permission to write the key to publish bytes of the forger's choice there, such as a program that echoes requests. So every record of a term
// states a commitment to a secret, and the release reveals the secret. Only the holder knows the secret. A candidate that has read any record
// of a term accepts no release of that term unless the release opens the commitment.
//
// A commitment is believed only if it was read from the bucket. A secret proves itself, wherever it was seen.

// noteNewTerm takes note of a record that begins another term than that of the known holder. It is called before the record replaces the known
// holder. Unless something proves that the known holder's term has ended, that holder's lease may still last:
//   - for its whole length from now, because the holder may have renewed until just before the new record was written;
//   - or, if nothingBetween, for its length from the write that this candidate saw last, because the holder made no later write.
func (c *Candidate) noteNewTerm(now time.Time, r *record.Record, nothingBetween bool) {
	k, before := &c.key, c.key.holder.record()
	if k.holder.name == "" || r.SameTerm(before) {
		return
	}
	if !k.holderEnded && k.holder.instance != c.Instance && !r.Follows(before.Commitment) {
		if now.After(k.unprovenUntil) {
			k.unprovenLease = 0
		}
		ends := now.Add(c.bucket.mostLeft(before.Lease(), false))
		if nothingBetween {
			left := c.leftOf(now, k.lastWrite.timedFrom, k.lastWrite.lease)
			ends = now.Add(left + timing.Ahead(left)) // by this clock, which may be slewed from now on
		}
		if ends.After(now) {
			k.unprovenUntil, k.unprovenLease = later(k.unprovenUntil, ends), max(k.unprovenLease, cmp.Or(before.Lease(), c.bucket.TTL))
		}
	}
	k.holderEnded = false
}

// noteRelease takes note of a record that was read or notified, if it is a release which proves that the known holder's term has ended: the
// release of that term, or of a later one that followed a release of that term.
func (c *Candidate) noteRelease(r *record.Record) {
	if !r.Released.IsZero() && (c.key.holder.commitment.OpenedBy(r.Secret) || r.Follows(c.key.holder.commitment)) {
		c.key.holderEnded = true
	}
}

// proves reports whether a release that was read proves that its term has ended. Then no lease lasts any more but those that
// earlierLeasesLeft returns.
//
// Every release must open its own commitment, and must have been written on condition that it replaced a given revision. Candidates write so;
// a message that somebody had a server or a program send to the key does not.
//
// If this candidate has read a record of the term that states a commitment, the release must open that commitment. Otherwise there is nothing
// to compare with: the candidate has just started, or it has missed a term that began after the known one had ended, or the holder writes bare
// names. Such a release is accepted all the same, so that a service that restarts alone leads again at once, and so does the next candidate
// for a lock. This is weaker: an attacker who can have a process write the key, with headers of the attacker's choice, can forge such a
// release and deceive a candidate that has read nothing of the term. The alternative is to wait for a whole lease at each start.
func (c *Candidate) proves(s *record.State) bool {
	r, known := &s.Record, c.key.holder.commitment
	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {
		return false
	}
	return r.Commitment == known || known == (record.Commitment{}) || c.key.holderEnded || r.Follows(known)
}

// longestLease returns the length of the longest lease that may still last: that of the known holder, unless its term is proven to have ended,
// and those of earlier holders whose end nothing proves.
func (c *Candidate) longestLease(now time.Time) (longest time.Duration) {
	if now.Before(c.key.unprovenUntil) {
		longest = c.key.unprovenLease
	}
	if c.holderMayLast() {
		longest = max(longest, c.key.holder.leaseTime())
	}
	return longest
}

// holderMayLast reports whether the lease of the known holder may still last: nothing proves that its term has ended.
func (c *Candidate) holderMayLast() bool {
	return !c.key.holderEnded && c.key.holder.instance != c.Instance
}

// earlierLeasesLeft returns how long the leases of earlier holders may still last; 0 if all have ended.
func (c *Candidate) earlierLeasesLeft(now time.Time) time.Duration {
	return max(0, c.key.unprovenUntil.Sub(now))
}

// leaseLeftAtMarker returns how long the lease of the known holder may still last where a marker was stored, at the given time of the server's
// clock; 0 if the marker proves that the lease is over. A server never expires a key early. So a marker that came sooner than a TTL after the
// holder's last write is not that of an expiry, or the bucket's TTL was made shorter: then the lease may last for its whole length from when
// that write was first seen.
func (c *Candidate) leaseLeftAtMarker(now, stored time.Time) time.Duration {
	lease := c.key.holder.leaseTime()
	if !c.holderMayLast() || stored.Sub(c.key.stamped) >= max(c.bucket.TTL, lease) {
		return 0
	}
	return max(0, c.key.lastWrite.firstSeen.Add(c.bucket.mostLeft(lease, false)).Sub(now))
}

// vanishedEarly reports whether a key under which nothing is stored now was certainly removed. It was if it cannot have expired: by the last
// write that this candidate knows of, the known holder's lease still lasts. A roll-up or a purge of the stream leaves no marker, but an expiry
// leaves one for markerTTL; that is 0 if this candidate would not see a marker.
func (c *Candidate) vanishedEarly(now time.Time, markerTTL time.Duration) bool {
	ttl := c.bucket.TTL
	lasts := min(ttl, cmp.Or(c.key.holder.leaseTime(), ttl)) + markerTTL
	return c.key.holder.name != "" && c.holderMayLast() && now.Before(c.key.lastWrite.writtenAfter.Add(lasts))
}

// removedLately reports whether somebody removed the key so lately that its leader may still believe in its lease, although the marker of an expiry
// was read at the given revision: the marker of that removal may have expired, and left one of its own.
func (c *Candidate) removedLately(now time.Time, revision uint64) bool {
	removal := c.key.removal
	return 0 < removal.revision && removal.revision < revision && now.Before(removal.at.Add(c.bucket.mostLeft(c.longestLease(now), false)))
}
