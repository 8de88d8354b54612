package election

import (
	"context"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
)

// acquisition is a write that wins the key.
type acquisition struct {
	over          uint64    // the revision that it is an update of; 0 if it creates the key
	read          time.Time // when the key was read; zero if it could not be
	stored        time.Time // when what it is an update of was written, by the server's clock
	reason        Reason
	removal       uint64             // the revision of the last removal that was notified before it was sent, if it creates the key
	removed       bool               // the key was free because somebody had removed it, as far as is known
	unproven      bool               // it is over a release that does not prove that its term has ended
	left          time.Duration      // of the stand-down of the writer of what was taken over, and of leases whose end nothing proves
	lease         time.Duration      // the longest lease of a holder that may last still, as far as is known
	bucketCreated time.Time          // when the bucket was created, as its server said last, by the record that was taken over
	named         bool               // the release that was taken over names this candidate
	queue         []string           // those that come after it in the queue that this release lists
	predecessors  []record.Secret    // of the terms before, the last first, if this release proves that its term has ended
	interval      time.Duration      // from one renewal of the predecessor to the next; 0 if that is not known
	successors    []record.Successor // that the predecessor knew
	priorities    []int              // the highest of their priorities
	since         time.Time          // just before the write was sent
	written       record.Record      // by it
	revision      uint64             // of the write
	acknowledged  time.Time
}

// creation returns the acquisition of a key where no record is to be written over, after the given predecessor. read is when the key was
// read; zero if it could not be.
func (r *run) creation(predecessor record.Record, read time.Time) acquisition {
	removed, inherited := r.listener.Past()
	a := acquisition{read: read, reason: ReasonVacant, removal: removed, removed: removed > 0, left: inherited}
	var marker time.Duration
	if r.seesMarkers(a) {
		marker = r.info().markerTTL
	}
	a.removed = a.removed || r.listener.VanishedEarly(marker)
	r.inherit(&a, predecessor)
	return a
}

// acquisitionOver returns the acquisition of a key that was read to be vacant, or to hold a late write of this candidate's own.
func (r *run) acquisitionOver(s kv.State) acquisition {
	predecessor, _ := r.listener.Holder()
	if s.Removal == kv.Gone {
		a := r.creation(predecessor, s.Read)
		if a.removed && a.removal == 0 {
			r.log.Warn("Key vanished before it can have expired, standing down for a whole lease", "from", predecessor.Name)
		}
		return a
	}
	// A release to which the history was rewound proves nothing: another leader may have followed it.
	a := acquisition{over: s.Revision, read: s.Read, stored: s.Written, reason: ReasonVacant, removed: s.Removal == kv.Removed || r.listener.IsRewound(s.Revision)}
	if s.Removal == kv.Kept {
		predecessor = s.Record
		a.bucketCreated = s.Record.Bucket()
		if left, released := s.Record.IsRelease(); released {
			a.reason, a.left = ReasonReleased, left
			if r.listener.Proves(s) {
				a.predecessors = append([]record.Secret{s.Record.Secret}, s.Record.Predecessors...)
				a.predecessors = a.predecessors[:min(len(a.predecessors), r.predecessors())]
			} else {
				a.unproven = true
				r.log.Warn("Release proves nothing, standing down for a whole lease", "from", s.Record.Name, "revision", s.Revision)
			}
			var place int
			place, a.named = s.Record.Place(r.name, r.instanceID())
			a.queue = s.Record.QueueAfter(place)
		} else {
			a.reason, a.left = ReasonReclaimed, time.Duration(s.Record.StandDownMs)*time.Millisecond
		}
	}
	r.inherit(&a, predecessor)
	return a
}

// seesMarkers reports whether a creation is refused over a marker.
func (r *run) seesMarkers(a acquisition) bool { return r.bucket.Conn() != nil && !a.read.IsZero() }

// predecessors returns how many terms before a record proves to have ended by a release. Leaders change seldom, and candidates miss no more
// than one of them. Those who wait for a lock may miss several.
func (r *run) predecessors() int {
	if r.opts.order == notify.ByRank {
		return 1
	}
	return record.MaxPredecessors
}

// inherit takes over what the predecessor knew of the candidates, and what is known of leases that may last.
func (r *run) inherit(a *acquisition, predecessor record.Record) {
	a.successors, a.priorities = predecessor.Named(), predecessor.Priorities
	a.interval = predecessor.Interval()
	var left time.Duration
	if a.reason != ReasonReclaimed {
		left = r.listener.LeftBefore()
	}
	if a.reason == ReasonVacant && a.over > 0 {
		left = max(left, r.listener.LeftAtMarker(a.stored))
	}
	a.left = max(a.left, time.Duration(record.Milliseconds(left))*time.Millisecond) // as the record of the win states it
	a.lease = r.listener.Lease()
}

// verifiedFor is for how long a release that was read proves what the update of it was written over: later the bucket may have been made
// again, or gone back to an earlier state, and the update may have hit another record that has the release's revision there. Leadership
// counts from such a win only once it is renewed.
const verifiedFor = 250 * time.Millisecond

// verified reports whether what was taken over proves that the bucket is still the one described by info.
func (a acquisition) verified(info *bucketInfo) bool {
	return a.reason == ReasonReleased && !a.unproven && a.bucketCreated.Equal(info.created) && a.acknowledged.Sub(a.read) < verifiedFor
}

// standDown returns how long the winner must wait in the bucket described by info. A release proves that its writer's work has ended,
// but only in the bucket that the writer led in: a release written for an earlier incarnation of the bucket proves nothing. What is left
// of another candidate's stand-down is never more than a lease may last. A leader whose key was removed may be partitioned, and then
// considers itself leader until its lease ends; so does a leader whose record was hit by a write that was meant for an earlier bucket. A
// late write of this candidate's own says what stand-down it had for such a cause. By default a predecessor whose interval was longer than this
// candidate's is given that time: it learns of its loss by its next renewal.
func (a acquisition) standDown(info *bucketInfo) time.Duration {
	longest := max(info.StandDown, info.TTL, a.lease)
	usual := info.StandDown
	if info.DefaultStandDown {
		usual = max(usual, min(a.interval, info.TTL))
	}
	usual += max(0, a.lease-info.TTL) // the bucket's TTL was longer when that lease began
	switch {
	case a.removed, a.unproven, a.reason != ReasonVacant && !a.bucketCreated.Equal(info.created):
		return longest
	case a.reason == ReasonReleased:
		return min(a.left, longest)
	}
	return min(max(usual, a.left), longest)
}

// announce makes an attempt that is refused, unless what was read is gone meanwhile: those who record attempts see this candidate.
func (r *run) announce(ctx context.Context, s kv.State) (*activeTerm, error) {
	return r.contest(ctx, r.creation(s.Record, s.Read), false)
}

// withdraw makes an attempt that is always refused, and that tells those who record attempts that this candidate, which announced itself,
// does not wait any more.
func (r *run) withdraw() {
	if r.bucket.Conn() == nil || !r.listener.Announced() {
		return
	}
	rec := r.record(time.Now())
	rec.Withdrawn, rec.Metadata = true, nil
	r.log.Debug("Withdrawn", "answer", r.updateNever(context.Background(), rec))
}

// receivesReplies reports whether the server's replies arrive, by an attempt that is always refused. A candidate that neither reads the key nor
// receives the reply to its creation would hold the key without knowing, again and again, and nobody could lead.
func (r *run) receivesReplies(ctx context.Context) bool {
	r.watchdog.busy("asking whether replies arrive")
	rec := r.record(time.Now())
	rec.Metadata = nil
	err := r.updateNever(ctx, rec)
	outcome := kv.Classify(err)
	r.writeAnswered(outcome)
	if r.unanswered = outcome == kv.Unknown; r.unanswered {
		r.requestFailed(writeRequest, err)
		r.log.Debug("Key not created, because no reply arrives", "error", kv.Describe(err))
	}
	return !r.unanswered
}

// updateNever makes an update that the server refuses whenever it arrives, and returns the answer.
func (r *run) updateNever(ctx context.Context, rec record.Record) error {
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout())
	defer cancel()
	_, err := r.bucket.Update(ctx, r.key, r.encode(rec), neverRevision)
	return err
}

// neverRevision is a revision that no key reaches.
const neverRevision = 1 << 62
