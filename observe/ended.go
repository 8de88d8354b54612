package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Ended returns how the elections of the given keys have ended that nobody holds now, sorted by key: one event each, of the kind Released, Evicted or
// Expired. The keys may have the wildcards of NATS subjects; none stands for all of the bucket.
//
// The event of a release names the last leader, and says why its term ended. A bucket that [election.CreateBucket] makes, unless for candidates of Choria,
// keeps it until the next win. The event of an eviction names the leader and the operator, and lasts for the TTL. Of other deletions, of purges and of
// expiries only the key and the time are known, for the TTL or for a second, and a purge is taken for an expiry: these are returned only for a key that is
// given without wildcards, for they may be those of other data. So nothing is returned for an election that nobody has ever led, nor for most that ended
// without a release.
//
// Of the key of a session more is known: who led it, also after a crash, until the record of the session expires some TTLs later.
//
// A key without wildcards needs no consumer. The error wraps [election.ErrInvalidOption] for a pattern that no key matches.
func (o *Observer) Ended(ctx context.Context, keys ...string) (ended []Event, err error) {
	var patterns []string
	last := map[string]jetstream.KeyValueEntry{}
	for _, key := range keys {
		switch {
		case strings.ContainsAny(key, "*>"):
			if err := validate.Pattern(key); err != nil {
				return nil, err
			}
			patterns = append(patterns, key)
		default:
			if err := o.readLast(ctx, key, last); err != nil {
				return nil, fmt.Errorf("how the election %q ended: %w", key, err)
			}
		}
	}
	if len(patterns) > 0 || len(keys) == 0 {
		err := o.all(ctx, patterns, func(entry jetstream.KeyValueEntry) { last[entry.Key()] = entry })
		if err != nil {
			return nil, fmt.Errorf("how elections of %q ended: %w", o.bucket.Bucket(), err)
		}
	}
	for _, entry := range last {
		if e, ok := endOf(entry); ok && (e.Leader.Name != "" || slices.Contains(keys, e.Key)) {
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b Event) int { return cmp.Compare(a.Key, b.Key) })
	return ended, nil
}

// readLast adds what is stored under a key.
func (o *Observer) readLast(ctx context.Context, key string, last map[string]jetstream.KeyValueEntry) error {
	if err := validate.Key(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	info, err := o.load(ctx)
	if err != nil {
		return err
	}
	entry, err := o.read(ctx, info, key, o.bucket.Last)
	switch {
	case err == nil:
		last[key] = entry
	case kv.Classify(err) != kv.Absent:
		return err
	}
	return nil
}

// endOfClaim is endOf for the key of a session.
func endOfClaim(c *claims.Entry) (Event, bool) {
	e, lost := lossOf(c)
	if !lost || c.Loss == claims.Vanished { // else it is known since when
		return Event{}, false
	}
	e.Key, e.At = c.Key(), c.At.UTC().Round(0)
	if e.Leader, _ = election.LeaderOf(c, 0); c.Value() == nil {
		e.Leader = election.Leader{Key: e.Key, Name: c.Eviction.Name, Term: c.Eviction.Term}
	}
	e.Leader.Expires = time.Time{}
	return e, true
}

// endOf returns how an election ended, by what is stored under its key; false if a candidate holds the key.
func endOf(entry jetstream.KeyValueEntry) (Event, bool) {
	if c, is := entry.(*claims.Entry); is {
		return endOfClaim(c)
	}
	e := Event{Key: entry.Key(), Leader: election.Leader{Key: entry.Key()}, At: entry.Created().UTC().Round(0)}
	switch kv.RemovalBy(entry) {
	case record.Kept:
		last, held := election.LeaderOf(entry, 0)
		if held {
			return Event{}, false
		}
		e.Kind, e.Leader, e.Reason = Released, last, election.Reason(record.Parse(entry.Value(), entry.Revision()).Reason)
	case record.Removed:
		by := record.ParseEviction(entry.Value())
		e.Kind, e.Reason, e.By, e.Leader.Name, e.Leader.Term = Evicted, election.ReasonDeleted, by.By, by.Name, by.Term
	default:
		e.Kind = Expired
	}
	return e, true
}
