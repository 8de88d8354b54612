package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// retryDelay is how long an observation waits before it tries again what failed.
const retryDelay = time.Second

// observation is one call of Observe. A watcher may stall without a sign, so it is started again whenever there is reason to doubt it.
// A new watcher repeats what is stored; what changed meanwhile follows from a comparison with what was stored before.
type observation struct {
	*Observer
	patterns []string
	ttl      time.Duration
	keys     map[string]*keyState // keys that are held, or were just now; belongs to run
	current  bool                 // the current state was reported
	queue    *queue
}

// keyState is what was last seen of one key.
type keyState struct {
	leader   election.Leader // the last holder
	held     bool
	leading  bool // leadership counts, as far as is known
	revision uint64
	written  time.Time
	expires  time.Time // by this host's clock: when a key that is held must have expired
	seen     bool      // by the watcher in use
}

// run follows the keys until ctx ends, by one watcher after the other.
func (o *observation) run(ctx context.Context, w *watcher) {
	var connected chan nats.Status
	if nc := o.bucket.Conn(); nc != nil {
		connected = nc.StatusChanged(nats.CONNECTED)
		defer nc.RemoveStatusListener(connected)
	}
	level := slog.LevelWarn // the first time
	for err := error(nil); ; w, err = o.watch(ctx, o.patterns) {
		switch {
		case err == nil:
			level = slog.LevelWarn
			o.observing(nil)
			o.follow(ctx, w, connected)
			kv.StopWatcher(w.KeyWatcher)
		case ctx.Err() == nil:
			o.observing(err)
			o.log.Log(ctx, level, "Elections cannot be observed, trying again", "bucket", o.bucket.Bucket(), "error", kv.Describe(err))
			level = slog.LevelDebug
			timeutil.Sleep(ctx, retryDelay)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// follow handles the updates of a watcher until the watcher ends or may be stalled: after the connection was made again, when a key that
// was held must have expired, or when nothing at all came for as long as leaders take to renew.
func (o *observation) follow(ctx context.Context, w *watcher, connected <-chan nats.Status) {
	o.ttl = w.ttl
	for _, k := range o.keys {
		k.seen = false
	}
	updated := time.Now()
	check := time.NewTimer(0)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-connected:
			return
		case <-check.C:
			w.counting(o.update)
			left := time.Until(o.stalledAt(updated))
			if left <= 0 {
				return
			}
			if wait, waits := w.wait(); waits {
				left = min(left, wait)
			}
			check.Reset(left)
		case update, ok := <-w.Updates():
			if !ok {
				timeutil.Sleep(ctx, retryDelay)
				return
			}
			if w.each(update, o.update) {
				o.current = true
				o.reportMissing()
			}
			updated = time.Now()
			if wait, waits := w.wait(); waits {
				check.Reset(min(wait, time.Until(o.stalledAt(updated))))
			}
		}
	}
}

// stalledAt returns when the watcher counts as stalled if nothing comes after the last update: when the first key that is held must have
// expired, or leaders must have renewed; but not before a new watcher can have begun.
func (o *observation) stalledAt(updated time.Time) time.Time {
	at := updated.Add(max(o.ttl, retryDelay) + timing.ExpiryLateness)
	for _, k := range o.keys {
		if k.held {
			at = timeutil.Earlier(at, k.expires)
		}
	}
	return timeutil.Later(at, updated.Add(retryDelay))
}

// reportMissing reports the end of the keys that were held and that a new watcher does not show. They are forgotten only when the next
// watcher does not show them either: a watcher that lags behind may repeat their last holder.
func (o *observation) reportMissing() {
	for key, k := range o.keys {
		switch {
		case k.seen:
		case !k.held:
			delete(o.keys, key)
		default:
			e := Event{Kind: Evicted}
			if !time.Now().Before(k.expires.Add(-timing.ExpiryLateness)) {
				e.Kind = Expired
			}
			k.held = false
			o.report(e, k.leader, time.Now())
		}
	}
}

// update handles one update of the watcher.
func (o *observation) update(entry jetstream.KeyValueEntry) {
	key := entry.Key()
	k := o.keys[key]
	if k == nil {
		k = &keyState{}
	}
	k.seen = true
	at := changedAt(entry)
	if k.revision == entry.Revision() && k.written.Equal(at) {
		return // a new watcher repeats it
	}
	before := k.revision
	k.revision, k.written = entry.Revision(), at
	l, held := leaderOf(entry, o.ttl)
	same := held && k.held && k.leader.Instance == l.Instance && k.leader.Name == l.Name && k.leader.Since.Equal(l.Since)
	if k.held && !same {
		o.report(k.ending(entry, before, o.ttl), k.leader, at)
	}
	if !held {
		delete(o.keys, key)
		return
	}
	o.keys[key] = k
	leading := l.Term != 0 || same && l.Instance == "" // a bare name leads from its first renewal
	if !same && (!leading || o.current) {              // with a history of one, the record of the win may be gone already
		won := record.Parse(entry.Value(), entry.Revision()).Won
		o.report(Event{Kind: Elected, Reason: election.Reason(won)}, l, at)
	}
	switch {
	case leading && !(same && k.leading):
		o.report(Event{Kind: Leading}, l, at)
	case same:
		o.report(Event{Kind: Renewed}, l, at)
	}
	k.leader, k.held, k.leading, k.expires = l, true, leading, time.Now().Add(o.ttl+timing.ExpiryLateness)
}

// changedAt returns the time of what an entry says.
func changedAt(entry jetstream.KeyValueEntry) time.Time {
	switch c, is := entry.(*claims.Entry); {
	case !is:
		return entry.Created()
	case c.At.IsZero():
		return time.Now()
	default:
		return c.At
	}
}

// report completes an event and hands it to the reader.
func (o *observation) report(e Event, l election.Leader, at time.Time) {
	e.Key, e.Leader, e.At = l.Key, l, at.UTC().Round(0)
	o.queue.push(e)
}
