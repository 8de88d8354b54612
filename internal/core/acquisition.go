package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// acquisition is a write that wins the key, unless it is refused: some are made only so that others see the candidate.
type acquisition struct {
	over          uint64    // the revision that it is an update of; 0 if it creates the key
	read          time.Time // when the key was read; zero if it could not be
	stored        time.Time // when what it is an update of was written, by the server's clock
	reason        Reason
	removal       uint64             // the revision of the last removal that was known before it was sent, if it creates the key
	removed       bool               // the key was free because somebody had removed it, as far as is known
	unproven      bool               // it is over a release that does not prove that its term has ended
	left          time.Duration      // of the stand-down of the writer of what was taken over, and of leases whose end nothing proves
	lease         time.Duration      // the longest lease of a holder that may last still, as far as is known
	bucketCreated time.Time          // when the bucket was created, as its server said last, by the record that was taken over
	named         bool               // the release that was taken over names this candidate
	queue         []string           // those that come after it in the queue that this release lists
	predecessors  record.Secrets     // of the terms before, the last first, if this release proves that its term has ended
	interval      time.Duration      // from one renewal of the predecessor to the next; 0 if that is not known
	successors    []record.Successor // that the predecessor knew
	priorities    []int              // the highest of their priorities
	since         time.Time          // just before the write was sent
	written       *record.Record     // by it
	revision      uint64             // of the write
	acknowledged  time.Time
	reconnects    uint64 // how often the connection had been made again then
}

// creation returns the acquisition of a key where no record is to be written over, after the given predecessor. read is when the key was
// read; zero if it could not be.
func (c *Candidate) creation(now time.Time, predecessor *record.Record, read time.Time) *acquisition {
	a := &acquisition{read: read, reason: Vacant, removal: c.key.removal.revision, removed: c.key.removal.revision > 0, left: c.key.passedStandDown}
	var marker time.Duration
	if c.seesMarkers(a) {
		marker = c.bucket.MarkerTTL
	}
	a.removed = a.removed || c.vanishedEarly(now, marker)
	c.inheritFrom(now, a, predecessor)
	return a
}

// acquisitionOver returns the acquisition of a key that was read to be vacant, or to hold a late write of this candidate's own or the record of a
// holder whose lease has lapsed.
func (c *Candidate) acquisitionOver(now time.Time, s *record.State) *acquisition {
	predecessor := c.key.holder.record()
	if s.Removal == record.Gone {
		a := c.creation(now, &predecessor, s.Read)
		if a.removed && a.removal == 0 {
			c.log(Warn, "Key vanished before it can have expired, standing down for a whole lease", "from", predecessor.Name)
		}
		return a
	}
	// A release to which the history was rewound proves nothing: another leader may have followed it.
	removed := s.Removal == record.Removed || c.wasRemovedBefore(now, s) || c.isRewound(s.Revision)
	a := &acquisition{over: s.Revision, read: s.Read, stored: s.Written, reason: Vacant, removed: removed}
	if s.Removal == record.Kept {
		predecessor = s.Record
		a.bucketCreated = s.Record.Bucket()
		if left, released := s.Record.IsRelease(); released {
			a.reason, a.left = Released, left
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
		} else {
			a.reason, a.left = Lapsed, time.Duration(s.Record.StandDownMs)*time.Millisecond
			if s.Record.Instance == c.Instance {
				a.reason = Reclaimed
			}
		}
	}
	c.inheritFrom(now, a, &predecessor)
	return a
}

// seesMarkers reports whether a creation is refused over a marker.
func (c *Candidate) seesMarkers(a *acquisition) bool { return c.Connected && !a.read.IsZero() }

// maxPredecessors returns how many terms before a record proves to have ended by a release. Leaders change seldom, and candidates miss no more
// than one of them. Candidates that wait for a lock may miss several.
func (c *Candidate) maxPredecessors() int {
	if c.Order == ByRank {
		return 1
	}
	return record.MaxPredecessors
}

// inheritFrom takes over what the predecessor knew of the candidates, and what is known of leases that may last.
func (c *Candidate) inheritFrom(now time.Time, a *acquisition, predecessor *record.Record) {
	a.successors, a.priorities = predecessor.Named(), predecessor.Priorities
	a.interval = predecessor.Interval()
	var left time.Duration
	if a.reason != Reclaimed {
		left = c.earlierLeasesLeft(now)
	}
	if a.reason == Vacant && a.over > 0 {
		left = max(left, c.leaseLeftAtMarker(now, a.stored))
	}
	a.left = max(a.left, time.Duration(record.Milliseconds(left))*time.Millisecond) // as the record of the win states it
	a.lease = c.longestLease(now)
}

// verifiedFor is for how long a release that was read proves what the update of it was written over: later the bucket may have been made
// again, or gone back to an earlier state, and the update may have hit another record that has the release's revision there. Leadership
// counts from such a win only once it is renewed.
const verifiedFor = 250 * time.Millisecond

// verified reports whether what was taken over proves that the bucket is still the given one.
func (a *acquisition) verified(b *Bucket) bool {
	return a.reason == Released && !a.unproven && a.bucketCreated.Equal(b.Created) && a.acknowledged.Sub(a.read) < verifiedFor
}

// standDown returns how long the winner must wait in the given bucket. A release proves that its writer's work has ended,
// but only in the bucket that the writer led in: a release written for an earlier incarnation of the bucket proves nothing. What is left
// of another candidate's stand-down is never more than a lease may last. A leader whose key was removed may be partitioned, and then
// considers itself leader until its lease ends; so does a leader whose record was hit by a write that was meant for an earlier bucket. A
// late write of this candidate's own says what stand-down it had for such a cause. By default a predecessor whose interval was longer than this
// candidate's is given that time: it learns of its loss by its next renewal.
func (a *acquisition) standDown(b *Bucket) time.Duration {
	longest := max(b.StandDown, b.mostLeft(a.lease))
	usual := b.StandDown
	if b.DefaultStandDown {
		usual = max(usual, min(a.interval, b.TTL))
	}
	usual += max(0, a.lease-b.TTL) // the bucket's TTL was longer when that lease began
	switch {
	case a.removed, a.unproven, a.reason != Vacant && !a.bucketCreated.Equal(b.Created):
		return longest
	case a.reason == Released, a.reason == Lapsed:
		return min(a.left, longest)
	}
	return min(max(usual, a.left), longest)
}

// acquire makes the write that may win the key.
func (c *Candidate) acquire(now time.Time) {
	a := c.bid.acquisition
	a.since = now
	r := c.newRecord(now)
	r.Won, r.Priorities, r.Notified = string(a.reason), a.priorities, c.Source() != NoSource
	r.StandDownMs = record.Milliseconds(a.standDown(&c.bucket))
	if c.secret == (record.Secret{}) {
		c.secret = c.NewSecret()
	}
	r.Commitment, r.Predecessors = c.secret.Commitment(), a.predecessors
	r.Leads = a.named && r.StandDownMs == 0 && !c.Plain
	a.written = r
	op := Op{Kind: Write, Doing: "campaigning", Limit: now.Add(c.bucket.RequestTimeout()), Value: c.encode(r), Over: a.over, Reconnects: AnyReconnects}
	if a.over == 0 {
		// Create reads what it is refused over, and writes over a marker that nobody has read.
		op.Create = !c.reading.resting && !c.reading.suspected && !c.seesMarkers(a)
	}
	c.ask(op, (*Candidate).acquired)
}

// neverRevision is a revision that no key reaches: a write over it is always refused.
const neverRevision = 1 << 62

// askNever makes a write that the server refuses whenever it arrives.
func (c *Candidate) askNever(now time.Time, doing string, r *record.Record, then stage) {
	r.Metadata = nil
	c.ask(Op{Kind: Write, Doing: doing, Limit: now.Add(c.bucket.RequestTimeout()), Value: c.encode(r), Over: neverRevision, Reconnects: AnyReconnects}, then)
}
