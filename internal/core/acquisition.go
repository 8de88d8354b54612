package core

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// A write that is to win the key: what it is written over, and which stand-down follows from that.
//
// An acquisition is made in three steps. creation or acquisitionOver says what is known before the write; writeOp makes the write; writeDone
// and won, in bidding.go, take in the answer. The stand-down is worked out twice: before the write, because the record states it, and after
// it, in the bucket that the write has hit.

// acquisition is a write that wins the key unless it is refused. A candidate also makes such a write while another candidate holds the key, and
// expects the refusal: the leader sees the attempt, and so learns of the candidate.
type acquisition struct {
	// What it is written over.
	replaces      uint64    // the revision that is replaced; 0 if the write creates the key
	readAt        time.Time // when the key was read; zero if it could not be read
	storedAt      time.Time // when that revision was written, by the server's clock
	reason        Reason
	bucketCreated time.Time // when the bucket was created, by the record that is replaced
	announces     bool      // something was read to be stored: the write is expected to be refused, also over a release that has been written since

	// What the stand-down follows from.
	removed       bool          // somebody had removed the key, as far as is known: it did not expire
	removalBefore uint64        // of a creation: the revision of the last removal that was known before the write was sent
	unproven      bool          // what is replaced does not prove that its term has ended: a release, or what outlived the TTL
	died          bool          // a witness wrote the release that is replaced
	mustWait      time.Duration // what is left of the stand-down that the replaced record passes on, and of leases whose end nothing proves
	longestLease  time.Duration // the longest lease of a holder that may still last, as far as is known
	interval      time.Duration // from one renewal of the predecessor to the next; 0 if that is not known
	unslewed      bool          // the stand-down is measured by a clock that is never slewed, see Candidate.correct

	// What the replaced release, or the predecessor's last record, says of other terms and candidates.
	named        bool               // the release names this candidate
	queue        []string           // the candidates after this one in the queue that the release lists
	predecessors record.Secrets     // of the terms before, the last first, if the release proves that its term has ended
	successors   []record.Successor // the candidates that the predecessor knew
	priorities   []int              // the highest of their priorities

	// The write.
	sent         time.Time // just before the write was sent
	written      *record.Record
	revision     uint64
	acknowledged time.Time
	reconnects   uint64 // how often the connection had been made again when the write was sent
}

// creation returns the acquisition of a key where no record is to be written over, after the given predecessor. readAt is when the key was
// read; zero if it could not be read.
func (c *Candidate) creation(now time.Time, predecessor *record.Record, readAt time.Time) *acquisition {
	removal := c.key.removal.revision
	a := &acquisition{readAt: readAt, reason: Vacant, removalBefore: removal, removed: removal > 0}
	var marker time.Duration
	if c.seesMarkers(a) {
		marker = c.bucket.MarkerTTL
	}
	a.removed = a.removed || c.vanishedEarly(now, marker)
	c.inheritFrom(now, a, predecessor)
	return a
}

// acquisitionOver returns the acquisition of a key that was read. The key is vacant, or has a late write of this candidate's own, the record of a holder
// whose lease has lapsed, or one that should have expired.
func (c *Candidate) acquisitionOver(now time.Time, s *record.State) *acquisition {
	predecessor := c.key.holder.record()
	if s.Removal == record.Gone {
		a := c.creation(now, &predecessor, s.Read)
		if a.removed && a.removalBefore == 0 {
			c.log(Warn, "Key vanished before it can have expired, standing down for a whole lease", "from", predecessor.Name)
		}
		return a
	}
	// A release to which the history was rewound proves nothing: another leader may have followed it.
	removed := s.Removal == record.Removed || s.Removal == record.Expired && c.removedLately(now, s.Revision) || c.isRewound(s.Revision)
	a := &acquisition{replaces: s.Revision, readAt: s.Read, storedAt: s.Written, reason: Vacant, removed: removed}
	if s.Removal == record.Kept {
		predecessor = s.Record
		a.bucketCreated = s.Record.Bucket()
		if standDown, released := s.Record.IsRelease(); released {
			c.followRelease(a, s, standDown)
		} else {
			a.mustWait = time.Duration(s.Record.StandDownMs) * time.Millisecond
			switch {
			case s.Record.Instance == c.Instance && c.doubt.isOurs(s):
				a.reason = Reclaimed
			case c.hasLapsed(now, s):
				a.reason = Lapsed
			default: // it has outlived the TTL, as good as expired, unless the clock of this candidate is fast
				a.unproven = true
			}
		}
	}
	c.inheritFrom(now, a, &predecessor)
	return a
}

// followRelease notes in an acquisition what follows from the release that it replaces. standDown is what the release passes on.
func (c *Candidate) followRelease(a *acquisition, s *record.State, standDown time.Duration) {
	a.reason, a.mustWait, a.died = Released, standDown, Reason(s.Record.Reason) == Died
	if c.proves(s) {
		a.predecessors = append(record.Secrets{s.Record.Secret}, s.Record.Predecessors...)
		a.predecessors = a.predecessors[:min(len(a.predecessors), c.maxPredecessors())]
	} else {
		a.unproven = true
		c.log(Warn, "Release proves nothing, standing down for a whole lease", "from", s.Record.Name, "revision", s.Revision)
	}
	var place int
	place, a.named = s.Record.Place(c.Name, c.Instance)
	a.queue = s.Record.QueueAfter(place)
}

// seesMarkers reports whether a marker under the key has the server refuse this creation. If not, the creation may write over a marker that
// this candidate has not seen, see writeOp.
func (c *Candidate) seesMarkers(a *acquisition) bool { return c.Connected && !a.readAt.IsZero() }

// maxPredecessors returns of how many earlier terms a record has the secrets, which prove that those terms ended by a release. A candidate that
// missed the releases needs them. Leaders change seldom, so that candidates miss no more than one; candidates for a lock may miss several.
func (c *Candidate) maxPredecessors() int {
	if c.Order == ByRank {
		return 1
	}
	return record.MaxPredecessors
}

// inheritFrom takes over what the predecessor knew of the candidates, and adds to what the winner must wait how long leases may still last and, where the
// release is gone that passed on a stand-down, that stand-down.
func (c *Candidate) inheritFrom(now time.Time, a *acquisition, predecessor *record.Record) {
	a.successors, a.priorities = predecessor.Named(), predecessor.Priorities
	a.interval = predecessor.Interval()
	var left time.Duration
	if a.reason != Reclaimed {
		left = c.earlierLeasesLeft(now)
	}
	if a.reason == Vacant {
		a.mustWait = max(a.mustWait, c.key.passedStandDown)
		if a.replaces > 0 {
			left = max(left, c.leaseLeftAtMarker(now, a.storedAt))
		}
	}
	a.mustWait = max(a.mustWait, time.Duration(record.Milliseconds(left))*time.Millisecond) // rounded as in the record of the win
	a.longestLease, a.unslewed = c.longestLease(now), c.moment(now).Unslewed
}

// verifiedFor is how soon after the read of a release its update must be acknowledged, so that the update has certainly replaced that release.
// Later the bucket may have been made again, or gone back to an earlier state, and the update may have hit another record that has the same
// revision there. Leadership counts from such a win only once it is renewed.
const verifiedFor = 250 * time.Millisecond

// verified reports whether the write has certainly replaced the release that was read.
func (a *acquisition) verified(b *Bucket) bool {
	return a.inBucket(b) && a.acknowledged.Sub(a.readAt) < verifiedFor
}

// inBucket reports whether the release that was replaced proves that the bucket is still the given one, or that nobody leads yet in one that was made since:
// the first winner there knows of no predecessor, and stands down for more than half of the TTL.
func (a *acquisition) inBucket(b *Bucket) bool {
	return a.reason == Released && !a.unproven && a.bucketCreated.Equal(b.Created) && a.acknowledged.Sub(a.readAt) < b.TTL/2
}

// standDown returns how long the winner must wait in the given bucket, from the acknowledgement of the win, before its leadership may count. It is the only
// place that says so; correct puts the end off if the clock is slewed meanwhile. Admin's check forecasts it, and the simulator's judge and the proof demand as much at least.
func (a *acquisition) standDown(b *Bucket) time.Duration {
	longest := max(b.StandDown, b.mostLeft(a.longestLease, a.unslewed)) // by then every lease is over
	usual := b.StandDown
	if b.DefaultStandDown {
		// A predecessor with a longer interval than this candidate's learns of its loss later, by its next renewal. One of which nothing is known is
		// taken to have the longest default.
		usual = max(usual, min(cmp.Or(a.interval, timing.DefaultInterval(b.TTL)), b.TTL))
	}
	if a.longestLease > b.TTL { // the bucket's TTL was longer when that lease began, and the leader's clock may be slow
		usual += timing.LapseTime(a.longestLease, b.TTL, a.unslewed) - b.TTL
	}
	switch {
	case a.removed: // the leader may be partitioned, and then considers itself leader until its lease ends
		return longest
	case a.unproven: // the release may be forged, and its supposed writer still lead; likewise the writer of what outlived the TTL
		return longest
	case a.fromEarlierBucket(b):
		return longest
	case a.reason == Released: // the term is proven to have ended
		return min(a.mustWait, longest)
	case a.reason == Lapsed: // likewise, and the others are to see it
		return min(max(a.mustWait, b.TakeoverPause()), longest)
	}
	// The key expired, or has a late write of this candidate's own, whose record says for which stand-down it was waiting.
	return min(max(usual, a.mustWait), longest)
}

// fromEarlierBucket reports whether the replaced record was written for an earlier incarnation of the bucket. It proves nothing for this one, and
// the write may have hit the record of a leader of this bucket that has the same revision.
func (a *acquisition) fromEarlierBucket(b *Bucket) bool {
	return a.reason != Vacant && !a.bucketCreated.Equal(b.Created)
}

// because says in a few words for people why the winner stands down in the given bucket.
func (a *acquisition) because(b *Bucket) string {
	switch {
	case a.removed:
		return "somebody removed the key, and its leader may not know yet"
	case a.unproven, a.fromEarlierBucket(b):
		return "nothing proves that the previous leader has stopped"
	case a.died && a.mustWait > 0:
		return "requests of the leader that died may be on their way"
	case a.reason == Lapsed && a.mustWait == 0:
		return "the other candidates are to read which write it took over"
	case a.reason == Released, a.reason == Lapsed:
		return "an earlier stand-down or lease is not over"
	}
	return "a previous leader, if there was one, may not know of its loss yet"
}

// writeOp returns the write that may win the key, and takes note of it.
func (a *acquisition) writeOp(c *Candidate, now time.Time) Op {
	a.sent = now
	r := c.newRecord(now)
	r.Won, r.Priorities, r.Notified = string(a.reason), a.priorities, c.Source() != NoSource
	r.StandDownMs = record.Milliseconds(a.standDown(&c.bucket))
	if c.secret == (record.Secret{}) {
		c.secret = c.NewSecret()
	}
	r.Commitment, r.Predecessors = c.secret.Commitment(), a.predecessors
	r.Leads = a.named && r.StandDownMs == 0 && !c.Plain
	a.written = r
	op := Op{Kind: Write, Limit: now.Add(c.bucket.RequestTimeout()), Value: c.encode(r), Replaces: a.replaces, Reconnects: AnyReconnects}
	if a.replaces == 0 {
		// Create reads what it is refused over, and writes over a marker that nobody has read.
		op.Create = !c.reading.resting && !c.reading.suspected && !c.seesMarkers(a) && !a.announces
	}
	return op
}

// refusedWriteOp returns a write that the server refuses whenever it arrives.
func (c *Candidate) refusedWriteOp(now time.Time, r *record.Record) Op {
	r.Metadata = nil
	return Op{Kind: Write, Limit: now.Add(c.bucket.RequestTimeout()), Value: c.encode(r), Replaces: record.NeverRevision, Reconnects: AnyReconnects}
}
