package observe

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session/claims"
)

// ending returns how the last holder lost the key, by what is stored after it; before is the revision of the holder's last write. With a
// history of one, what came between may be gone. A watcher does not distinguish an expiry from a purge, but servers never expire a key
// early.
func (k *keyState) ending(entry jetstream.KeyValueEntry, before uint64, ttl time.Duration) Event {
	if e, lost := lossOf(entry); lost {
		return e
	}
	if kv.RemovalBy(entry) != record.Kept {
		return k.removal(entry, before, ttl)
	}
	next := record.Parse(entry.Value(), entry.Revision())
	_, release := next.IsRelease()
	switch won := election.Reason(next.Won); {
	case release && next.Instance == k.leader.Instance && (next.Instance != "" || next.Name == k.leader.Name):
		return Event{Kind: Released, Reason: election.Reason(next.Reason)}
	case won == election.ReasonReleased, release && k.leader.Instance == "" && next.Name == k.leader.Name:
		return Event{Kind: Released} // by a release that is gone already
	case won == election.ReasonLapsed && entry.Created().Sub(k.leader.Renewed) >= ttl/2: // no lease is shorter
		return Event{Kind: Expired, Reason: election.ReasonLapsed}
	case entry.Created().Sub(k.leader.Renewed) >= ttl:
		return Event{Kind: Expired}
	case won == election.ReasonReclaimed && next.Instance == k.leader.Instance:
		return Event{Kind: Evicted} // from a term that it had given up: it holds a late write of that term
	case next.BucketCreated.After(k.leader.BucketCreated) && !k.leader.BucketCreated.IsZero():
		return Event{Kind: Evicted, Reason: election.ReasonBucketReplaced}
	case entry.Revision() < before:
		return Event{Kind: Evicted, Reason: election.ReasonRewound}
	case won == election.ReasonVacant: // the winner found nothing where a record had not expired
		return Event{Kind: Evicted, Reason: election.ReasonDeleted}
	}
	return Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: next.Name}
}

// lossOf returns how the key of a session was lost; false if somebody holds the key, or the bucket is not one for sessions.
func lossOf(entry jetstream.KeyValueEntry) (e Event, lost bool) {
	c, is := entry.(*claims.Entry)
	if !is || c.Loss == claims.Held {
		return e, false
	}
	switch c.Loss {
	case claims.Released:
		return Event{Kind: Released, Reason: election.Reason(c.Reason)}, true
	case claims.Lapsed, claims.Vanished:
		return Event{Kind: Expired, Reason: election.Reason(c.Reason)}, true
	case claims.Evicted:
		return Event{Kind: Evicted, Reason: election.ReasonDeleted, By: c.Eviction.By}, true
	}
	return Event{Kind: Evicted, Reason: election.ReasonOverwritten, By: c.By}, true
}

// removal returns how the last holder lost the key, by the marker of its removal.
func (k *keyState) removal(entry jetstream.KeyValueEntry, before uint64, ttl time.Duration) Event {
	deleted, by := entry.Operation() == jetstream.KeyValueDelete, record.ParseEviction(entry.Value()).By
	switch {
	case deleted && k.leader.Instance == "" && by == "": // a holder that writes bare names releases the key by deleting it
		return Event{Kind: Released}
	case !deleted && entry.Created().Sub(k.leader.Renewed) >= ttl:
		return Event{Kind: Expired}
	case entry.Revision() < before: // of a bucket that was made again, or restored from a copy
		return Event{Kind: Evicted}
	}
	return Event{Kind: Evicted, Reason: election.ReasonDeleted, By: by}
}
