// Package claims reads who leads the keys of a bucket for sessions, for programs and people that only want to know. It shows each claimed key as an entry of a
// bucket of elections: under its plain key, with the record of its leader, or that of a release if nobody leads it any more. So those who read elections
// need to know of sessions only how a key was lost.
package claims

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timeutil"
)

// Entry is what is known of one key, as an entry of a bucket. Its value is the record of the leader or of the last one, empty if a stranger wrote over that, and
// its revision that of the claim. It was created when the session was renewed last.
type Entry struct {
	entry
	At       time.Time // of the latest change: the claim, the end of the wait of its taker, a renewal of the session, or the end of the term
	Loss     Loss
	Reason   string          // why the term ended, as a release says, or that another session closed this one
	Eviction record.Eviction // by an operator; zero if it was none
	By       string          // the name in what was written over the session
}

// entry is a jetstream.KeyValueEntry.
type entry struct {
	bucket, key string
	revision    uint64
	renewed     time.Time
	value       []byte
	counts      bool // leadership does
}

func (e *entry) Bucket() string                { return e.bucket }
func (e *entry) Key() string                   { return e.key }
func (e *entry) Value() []byte                 { return e.value }
func (e *entry) Revision() uint64              { return e.revision }
func (e *entry) Created() time.Time            { return e.renewed }
func (*entry) Delta() uint64                   { return 0 }
func (*entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// Loss is how the last leader of a key lost it.
type Loss int

// The values of Loss.
const (
	Held        Loss = iota // it leads, or its leadership does not count yet
	Released                // it released the key or its session, or a witness of its death did
	Lapsed                  // the lease of its session is over
	Vanished                // its session is not stored any more, and nothing says since when it is over
	Evicted                 // an operator wrote over the claim
	Overwritten             // a stranger wrote over the claim, or over the session
)

// StoredIn returns what an entry of the bucket stores.
func StoredIn(e jetstream.KeyValueEntry) session.Stored {
	return session.Stored{Record: record.Parse(e.Value(), e.Revision()), Revision: e.Revision(), Written: e.Created()}
}

// claim is what is stored under the key of a claim.
type claim struct {
	session.Stored
	eviction record.Eviction
}

func claimIn(e jetstream.KeyValueEntry) claim {
	c := claim{Stored: StoredIn(e)}
	if c.Record.Instance == "" {
		c.eviction = record.ParseEviction(e.Value())
	}
	return c
}

// counts returns from when on leadership by the claim counts, by the server's clock.
func (c claim) counts() time.Time {
	return c.Written.Add(time.Duration(c.Record.StandDownMs) * time.Millisecond)
}

// entry returns what a claim says, and the session that it names, at a time of the server's clock.
func (c claim) entry(bucket, key string, owner session.Stored, ttl time.Duration, now time.Time) *Entry {
	e := &Entry{entry: entry{bucket: bucket, key: key, revision: c.Revision, renewed: owner.Written}, At: c.Written}
	r, named := session.Holder(c.Stored, owner, now)
	wait := time.Duration(r.StandDownMs) * time.Millisecond
	s := &owner.Record
	switch over := owner.Written.Add(ttl); {
	case named && now.Before(over):
		e.At = timeutil.Later(c.Written, owner.Written)
		if e.counts = r.Term != 0; e.counts {
			e.At = timeutil.Later(e.At, c.counts())
		}
		e.value = r.Encode()
		return e
	case r.Instance == "":
		e.Loss, e.Eviction, e.renewed = Overwritten, c.eviction, c.Written
		if e.Eviction.By != "" {
			e.Loss = Evicted
		}
		return e
	case !r.Released.IsZero():
		e.Loss, e.Reason = Released, r.Reason
		if r.Term != 0 {
			r.Led = r.Since
		}
	case owner.Revision == 0:
		e.Loss, e.At = Vanished, time.Time{}
	case named:
		e.Loss, e.At = Lapsed, over
	case s.Instance != r.Instance:
		e.Loss, e.At, e.By = Overwritten, owner.Written, s.Name
	case s.ClosedBy != "":
		e.Loss, e.At, e.Reason = Lapsed, owner.Written, string(core.Lapsed)
	default:
		e.Loss, e.At, e.Reason = Released, owner.Written, s.Reason
	}
	if r.Released.IsZero() && c.counts().Before(e.At) {
		r.Term, r.Led = c.Revision, r.Since.Add(wait)
	}
	if s.Instance == r.Instance {
		r.Host, r.PID = s.Host, s.PID
	}
	e.renewed, e.value = e.At, r.Encode()
	return e
}

// Keys are all keys of a bucket that are claimed, by what a watcher of the bucket delivers.
type Keys struct {
	info   kv.Info // of the time when the watcher was started; its clock is set anew if need be
	all    bool    // that is stored has come
	claims map[string]claim
	owners map[string]session.Stored
	of     map[string]map[string]bool // the keys that the claims of each session are of
	waits  map[string]time.Time       // the keys whose leadership does not count yet, and until when by the server's clock
}

// NewKeys returns the keys of a bucket of which nothing has come yet.
func NewKeys(info kv.Info) *Keys {
	return &Keys{info: info, claims: map[string]claim{}, owners: map[string]session.Stored{}, of: map[string]map[string]bool{}, waits: map[string]time.Time{}}
}

// Patterns returns what a watcher has to watch for the given keys, which may have wildcards.
func Patterns(keys []string) (patterns []string) {
	for _, key := range keys {
		patterns = append(patterns, session.ClaimKey(key))
	}
	if len(keys) > 0 {
		patterns = append(patterns, session.SessionKey(">"))
	}
	return patterns
}

// Take takes what the watcher delivers, nil once all that is stored has come, and returns the entries of the keys of which it says something.
func (k *Keys) Take(delivered jetstream.KeyValueEntry) (entries []*Entry) {
	if delivered == nil {
		k.all = true
		for key := range k.claims {
			entries = append(entries, k.entry(key))
		}
		return entries
	}
	k.followClock(delivered.Created())
	keys := map[string]bool{}
	if key, is := session.ClaimOf(delivered.Key()); is {
		before, now := k.claims[key].Record.Instance, claimIn(delivered)
		delete(k.of[before], key)
		if k.claims[key] = now; k.of[now.Record.Instance] == nil {
			k.of[now.Record.Instance] = map[string]bool{}
		}
		k.of[now.Record.Instance][key], keys[key] = true, true
		k.forget(before)
	} else if id, is := session.SessionOf(delivered.Key()); is {
		k.owners[id], keys = StoredIn(delivered), k.of[id]
	}
	if !k.all {
		return nil
	}
	for key := range keys {
		entries = append(entries, k.entry(key))
	}
	return entries
}

// followClock sets the clock of the server by what it has just written, if the two do not agree: another server may lead the stream by now, whose clock
// differs, or the clock was set.
func (k *Keys) followClock(written time.Time) {
	if now := k.info.Now(); !k.all || k.info.Stream == nil || !written.After(now) && !now.After(written.Add(k.info.SessionTTL)) {
		return
	}
	stream := *k.info.Stream
	stream.TimeStamp = written
	k.info.Stream, k.info.Read, k.info.Took = &stream, time.Now(), 0
}

// forget forgets a session that no claim names any more, unless it is open: each process opens another one at its start.
func (k *Keys) forget(id string) {
	if len(k.of[id]) > 0 || !k.all {
		return
	}
	delete(k.of, id)
	if o := k.owners[id]; !isOpen(&o.Record) {
		delete(k.owners, id)
	}
}

// isOpen reports whether the record of a session says that it is open.
func isOpen(r *record.Record) bool { return r.Released.IsZero() && r.ClosedBy == "" }

// Counting returns the entries of the keys whose leadership has begun to count, which nothing that is delivered says.
func (k *Keys) Counting() (entries []*Entry) {
	for key, until := range k.waits {
		if !k.info.Now().Before(until) {
			entries = append(entries, k.entry(key))
		}
	}
	return entries
}

// Wait returns the time until Counting has something to return; false if nothing is to come.
func (k *Keys) Wait() (wait time.Duration, waits bool) {
	for _, until := range k.waits {
		if left := until.Sub(k.info.Now()); !waits || left < wait {
			wait, waits = max(left, time.Millisecond), true
		}
	}
	return wait, waits
}

func (k *Keys) entry(key string) *Entry {
	c := k.claims[key]
	e := c.entry(k.info.Bucket, key, k.owners[c.Record.Instance], k.info.SessionTTL, k.info.Now())
	if delete(k.waits, key); e.Loss == Held && !e.counts {
		k.waits[key] = c.counts()
	}
	return e
}

// Numbers are how many sessions are open, and how many keys somebody holds, or held until the session was over.
type Numbers struct{ Sessions, Held, Over int }

// Count reads the bucket, and counts.
func Count(ctx context.Context, b *kv.Bucket, info kv.Info) (n Numbers, err error) {
	w, err := b.StartWatcher(ctx, ">", func(ctx context.Context) (jetstream.KeyWatcher, error) { return b.WatchAll(ctx) })
	if err != nil {
		return n, err
	}
	defer kv.StopWatcher(w)
	k := NewKeys(info)
	for !k.all {
		select {
		case delivered, ok := <-w.Updates():
			if !ok {
				return n, errors.New("the watcher ended")
			}
			for _, e := range k.Take(delivered) {
				switch e.Loss {
				case Held:
					n.Held++
				case Lapsed, Vanished:
					n.Over++
				}
			}
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
	for _, o := range k.owners {
		if isOpen(&o.Record) && info.Now().Before(o.Written.Add(info.SessionTTL)) {
			n.Sessions++
		}
	}
	return n, nil
}

// Get reads the claim of one key, and the session that the claim names. The error is jetstream.ErrKeyNotFound if the key was never claimed.
func Get(ctx context.Context, b *kv.Bucket, info kv.Info, key string) (*Entry, error) {
	found, err := get(ctx, b, session.ClaimKey(key))
	if err != nil {
		return nil, err
	}
	c, owner := claimIn(found), session.Stored{}
	if id := c.Record.Instance; id != "" {
		switch found, err = get(ctx, b, session.SessionKey(id)); {
		case err == nil:
			owner = StoredIn(found)
		case kv.Classify(err) != kv.Absent:
			return nil, err
		}
	}
	return c.entry(b.Bucket(), key, owner, info.SessionTTL, info.Now()), nil
}

func get(ctx context.Context, b *kv.Bucket, key string) (found jetstream.KeyValueEntry, err error) {
	err = kv.UntilRefused(ctx, b.Conn(), b.ToRead(key), func(ctx context.Context) (err error) {
		found, err = b.Get(ctx, key)
		return err
	})
	return found, err
}

// Evict takes a key from its leader while what is stored has the given revision. In a bucket of elections it deletes the key. In one for sessions, in which
// nothing can be deleted, it writes over the claim what no session writes: the leader loses the key, and others wait for a lease before they lead.
func Evict(ctx context.Context, b *kv.Bucket, info kv.Info, key string, revision uint64, e record.Eviction) error {
	if info.SessionTTL <= 0 {
		return b.Evict(ctx, key, revision, e)
	}
	stored := session.ClaimKey(key)
	return kv.UntilRefused(ctx, b.Conn(), b.ToWrite(stored), func(ctx context.Context) error {
		_, err := b.Update(ctx, stored, e.Encode(), revision)
		return err
	})
}
