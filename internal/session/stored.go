package session

import (
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
)

// stored is what a session knows to be stored in the bucket.
type stored struct {
	claims   map[string]*storedClaim // by their keys
	others   map[string]*other       // sessions, by their ids; not this one
	settled  bool                    // the bucket is older than any lease of an earlier bucket
	position uint64                  // everything up to this sequence is known, but for the gaps; 0 if that is not so
	gaps     gaps
	created  time.Time // the identity of the bucket that was read last
	newest   time.Time // when the latest record of another session was stored, by the server's clock
}

// gaps are the sequences that the consumer has left out, for what was stored there had been replaced. A gap ends when a change is delivered that says that it
// has replaced that, or with an own renewal that was sent after the gap had been noticed: by then the replacement was stored, so that it has been delivered, or
// is in another gap. What the server says it has still to deliver does not count: its figure comes late, and a replica that is behind does not know it.
type gaps struct {
	open    []gap
	noticed uint64 // how many there have been
}

// gap is one of them, from the first sequence to the last.
type gap struct{ number, first, last uint64 }

// notice takes note that the next sequence that was delivered is not the one that comes first.
func (g *gaps) notice(first, delivered uint64) {
	if delivered > first {
		g.noticed++
		g.open = append(g.open, gap{g.noticed, first, delivered - 1})
	}
}

// distrust notes a gap of which nobody knows where it is, so that only a renewal ends it that is sent from now on.
func (g *gaps) distrust() {
	g.noticed++
	g.open = append(g.open, gap{g.noticed, 1, 0})
}

// anyOf reports whether one of the gaps is open that were noticed when there had been so many.
func (g *gaps) anyOf(noticed uint64) bool {
	return slices.ContainsFunc(g.open, func(open gap) bool { return open.number <= noticed })
}

// end takes note of what has replaced the change of a sequence.
func (g *gaps) end(sequence uint64) {
	for i, open := range g.open {
		if sequence < open.first || sequence > open.last {
			continue
		}
		var left []gap
		if open.first < sequence {
			left = append(left, gap{open.number, open.first, sequence - 1})
		}
		if sequence < open.last {
			left = append(left, gap{open.number, sequence + 1, open.last})
		}
		g.open = slices.Replace(g.open, i, i+1, left...)
		return
	}
}

// endAt ends the gaps that were noticed when there had been so many.
func (g *gaps) endAt(noticed uint64) {
	g.open = slices.DeleteFunc(g.open, func(open gap) bool { return open.number <= noticed })
}

// claimKind is what is stored under the key of a claim.
type claimKind uint8

const (
	unclaimed claimKind = iota
	claimed             // by a session
	released            // by the session that had it
	foreign             // by a stranger, as in an eviction
)

// storedClaim is what is stored under the key of a claim. The zero value is that of a key that was never claimed.
type storedClaim struct {
	kind       claimKind
	revision   uint64
	replaced   uint64 // the revision that it replaced
	had        uint64 // the revision that it had until everything was to be read anew
	owner      string // the session that has or had it
	attempt    string // the write
	since      time.Time
	metadata   map[string]string
	commitment record.Commitment
	wait       time.Duration      // for how long leaders before the owner may lead, as the owner stated
	known      time.Duration      // the same, as this session knew by what was stored before
	successors []record.Successor // that a release names
	secret     record.Secret      // that a release reveals
	seen       lease.Moment       // since when this is known to be stored
	keptUntil  time.Time          // this session does not release it before, because its work may go on
}

// isAgain reports whether this is the claim that was stored before, and has been read again.
func (c *storedClaim) isAgain(before *storedClaim) bool {
	return c.kind == claimed && before.kind == claimed && before.revision == 0 && before.had == c.revision && before.attempt == c.attempt && before.commitment == c.commitment
}

// names reports whether this is the claim of a session.
func (c *storedClaim) names(id string) bool { return c.kind == claimed && c.owner == id }

// take takes note of what is stored under the key of a claim, and reports whether that is news. A release that was written to an earlier bucket of this name
// proves nothing: by chance it may have replaced a claim that has the revision which its own had there.
func (c *storedClaim) take(ch *Change, now lease.Moment, created time.Time) bool {
	if ch.Revision <= c.revision {
		return false
	}
	r, known := &ch.Record, c.commitment
	anybodys := c.kind == unclaimed || c.kind == released // the release may be of a term of which nothing is known
	*c = storedClaim{kind: foreign, revision: ch.Revision, replaced: ch.Replaced, attempt: ch.Record.Attempt, seen: now, keptUntil: c.keptUntil}
	wait, isRelease := r.IsRelease()
	switch {
	case r.Instance == "" || ch.Unconditional, isRelease && !r.BucketCreated.Equal(created): // no session of this bucket writes so
	case isRelease && (anybodys || r.Commitment == known) && r.Commitment.OpenedBy(r.Secret):
		c.kind, c.owner, c.attempt, c.wait, c.successors, c.secret = released, r.Instance, r.Attempt, wait, r.Named(), r.Secret
	case !isRelease && r.Released.IsZero() && r.StandDownMs >= 0:
		c.kind, c.owner, c.attempt, c.since, c.metadata, c.commitment = claimed, r.Instance, r.Attempt, r.Since, r.Metadata, r.Commitment
		c.wait = time.Duration(r.StandDownMs) * time.Millisecond
	}
	return true
}

// otherStatus is what is known of another session.
type otherStatus uint8

const (
	open     otherStatus = iota
	closed               // nobody can renew it any more
	ended                // its process released it, or a witness of its death did
	vanished             // it is not stored
)

// other is what is known of another session.
type other struct {
	status     otherStatus
	name       string
	revision   uint64    // of the last write of it that was seen
	written    time.Time // when that was stored, by the server's clock; zero if it is not known
	commitment record.Commitment
	lease      time.Duration
	renewal    uint64        // the last renewal that was seen
	timed      lease.Moment  // when it was first seen, if nothing may have been missed since; then its lease is timed by it
	closedAt   lease.Moment  // since when it is known that nobody can renew it
	closedOver uint64        // the renewal that the closing replaced
	overAt     time.Time     // since when its claims may be taken
	settles    time.Duration // for how long leaders before it may lead when it ended, as it states, or effects of its process be on their way, as a witness states
	witnessed  bool          // a witness of the death of its process released it, who knows nothing of leaders before
	closing    bool          // this session is closing it
	refusedAt  time.Time     // when it last could not, and the reason is not known yet
	named      int           // how many claims name it, of the keys that this process campaigns for
}

// isFresh reports whether the session is open, as far as is known, and was renewed not long ago: the server should remove the record of one that was not, but
// after a crash it may have forgotten that.
func (o *other) isFresh(now lease.Moment, ttl time.Duration) bool {
	if o.status != open {
		return false
	}
	passed, _ := now.Since(o.timed)
	return !o.timed.Known() || passed <= expiryTTLs*ttl
}

// take takes note of what is stored of another session.
func (o *other) take(id string, ch *Change, now lease.Moment) {
	if ch.Revision < o.revision || ch.Revision == o.revision && o.timed.Known() {
		return
	}
	r := &ch.Record
	settles, isRelease := r.IsRelease()
	o.revision = ch.Revision
	switch {
	case ch.Unconditional, r.Instance != id, r.ClosedBy != "", r.Commitment != o.commitment && o.commitment != record.Commitment{}:
		o.close(now, ch.Replaced) // whatever a stranger wrote, no renewal can follow
	case isRelease && r.Commitment.OpenedBy(r.Secret):
		o.status, o.overAt, o.closedAt, o.settles, o.witnessed = ended, now.At, now, settles, r.Reason == string(core.Died)
	case !r.Released.IsZero():
		o.close(now, ch.Replaced)
	default:
		o.status, o.name, o.lease, o.renewal, o.timed = open, r.Name, max(o.lease, r.Lease()), ch.Revision, now
		o.commitment = r.Commitment
	}
}

// close takes note that nobody can renew the session any more.
func (o *other) close(now lease.Moment, over uint64) {
	if o.status == closed || o.status == vanished {
		return
	}
	o.status, o.closedAt, o.closedOver, o.overAt = closed, now, over, now.At
}

// claim returns what is stored under the key of a claim.
func (k *stored) claim(key string) *storedClaim {
	c := k.claims[key]
	if c == nil {
		c = &storedClaim{}
		k.claims[key] = c
	}
	return c
}

// forget has everything be read and timed anew: something may have been missed, or history may have gone back. What proves a release stays known.
func (k *stored) forget() {
	k.position, k.gaps.open = 0, nil
	for _, c := range k.claims {
		c.had, c.revision = max(c.had, c.revision), 0 // for how long leaders before its owner may lead stays known, too
	}
	for _, o := range k.others {
		*o = other{name: o.name, commitment: o.commitment, lease: o.lease, named: o.named}
	}
}
