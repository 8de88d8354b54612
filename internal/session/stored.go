package session

import (
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
)

// stored is what a session knows to be stored in the bucket.
type stored struct {
	claims   map[string]*storedClaim // by their keys
	others   map[string]*other       // sessions, by their ids; not this one
	settled  bool                    // the bucket is older than any lease of an earlier bucket
	position uint64                  // everything up to this sequence is known; 0 if that is not so
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
	owner      string // the session that has or had it
	attempt    string // the write
	since      time.Time
	commitment record.Commitment
	wait       time.Duration      // for how long leaders before the owner may lead, as the owner stated
	successors []record.Successor // that a release names
	seen       lease.Moment       // since when this is known to be stored
}

// names reports whether this is the claim of a session.
func (c *storedClaim) names(id string) bool { return c.kind == claimed && c.owner == id }

// take takes note of what is stored under the key of a claim, and reports whether that is news.
func (c *storedClaim) take(ch *Change, now lease.Moment) bool {
	if ch.Revision <= c.revision {
		return false
	}
	r, known := &ch.Record, c.commitment
	anybodys := c.kind == unclaimed || c.kind == released // the release may be of a term of which nothing is known
	*c = storedClaim{kind: foreign, revision: ch.Revision, seen: now}
	wait, isRelease := r.IsRelease()
	switch {
	case r.Instance == "" || ch.Unconditional: // no session writes so
	case isRelease && (anybodys || r.Commitment == known) && r.Commitment.OpenedBy(r.Secret):
		c.kind, c.owner, c.attempt, c.wait, c.successors = released, r.Instance, r.Attempt, wait, r.Named()
	case !isRelease && r.Released.IsZero() && r.StandDownMs >= 0:
		c.kind, c.owner, c.attempt, c.since, c.commitment = claimed, r.Instance, r.Attempt, r.Since, r.Commitment
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
	revision   uint64 // of the last write of it that was seen
	commitment record.Commitment
	lease      time.Duration
	renewal    uint64       // the last renewal that was seen
	timed      lease.Moment // when it was first seen, if nothing may have been missed since; then its lease is timed by it
	closedAt   lease.Moment // since when it is known that nobody can renew it
	closedOver uint64       // the renewal that the closing replaced
	overAt     time.Time    // since when its claims may be taken
	closing    bool         // this session is closing it
	refusedAt  time.Time    // when it last could not, and the reason is not known yet
	named      int          // how many claims name it, of the keys that this process campaigns for
}

// take takes note of what is stored of another session, and reports whether that is news.
func (o *other) take(id string, ch *Change, now lease.Moment) bool {
	if ch.Revision < o.revision || ch.Revision == o.revision && o.timed.Known() {
		return false
	}
	r := &ch.Record
	news := ch.Revision > o.revision
	o.revision = ch.Revision
	switch {
	case ch.Unconditional, r.Instance != id, r.ClosedBy != "", r.Commitment != o.commitment && o.commitment != record.Commitment{}:
		o.close(now, ch.Replaced) // whatever a stranger wrote, no renewal can follow
	case !r.Released.IsZero() && r.Commitment.OpenedBy(r.Secret):
		o.status, o.overAt = ended, now.At
	case !r.Released.IsZero():
		o.close(now, ch.Replaced)
	default:
		o.status, o.name, o.lease, o.renewal, o.timed = open, r.Name, max(o.lease, r.Lease()), ch.Revision, now
		o.commitment = r.Commitment
	}
	return news
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
	k.position = 0
	for _, c := range k.claims {
		c.revision, c.seen = 0, lease.Moment{}
	}
	for _, o := range k.others {
		*o = other{name: o.name, commitment: o.commitment, lease: o.lease, named: o.named}
	}
}
