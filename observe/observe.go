// Package observe reports who leads in the elections of a bucket, for programs that do not campaign.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//		"os"
//
//		"github.com/natscampaign/election/connect"
//		"github.com/natscampaign/election/observe"
//	)
//
//	func main() {
//		ctx := context.Background()
//		c, err := connect.Connect(ctx, connect.Config{URL: os.Getenv("NATS_URL"), MustExist: true})
//		if err != nil {
//			log.Fatal(err)
//		}
//		observer, err := observe.New(c.Bucket)
//		if err != nil {
//			log.Fatal(err)
//		}
//		events, err := observer.Observe(ctx) // of all elections in the bucket, until ctx ends
//		if err != nil {
//			log.Fatal(err)
//		}
//		for event := range events {
//			fmt.Println(event.At, event.Key, event.Kind, event.Leader.Name)
//		}
//	}
//
// A report may be a moment old, and a little older in a replicated bucket. It is for people, for metrics, and for finding the leader;
// never base what only a leader may do on it. The fencing token of a report, [election.Leader.Token], can be compared.
//
// The keys of sessions, see package session, are elections too. In their bucket an Observer asks for the stream's info each time.
//
// An Observer writes nothing. It needs permission to publish to $JS.API.STREAM.INFO.KV_<bucket> and to read the keys; [Observer.Leaders] and
// [Observer.Observe] also create a consumer. What is not permitted is an error that wraps nats.ErrPermissionViolation, at once where the
// server says so and the bucket knows its connection.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Observer reads who leads in the elections of a bucket. Its methods may be called by several goroutines.
type Observer struct {
	bucket    *kv.Bucket
	log       *slog.Logger
	observing func(error)              // is told why elections cannot be observed, and nil once they are
	known     atomic.Pointer[knownTTL] // of a bucket of elections; nil until it was read
}

// New returns an observer of the bucket. Of the options it uses [election.WithLogger] and [election.WithDebug], and
// [election.WithJetStream] if the bucket does not know its connection: with the connection it notices at once that this was made again.
// All other options are for candidates, and have no effect. The error wraps [election.ErrInvalidOption].
func New(bucket jetstream.KeyValue, opts ...election.Option) (*Observer, error) {
	s, err := settings.Of(opts, "observer", "observer", bucket)
	if err != nil {
		return nil, err
	}
	observing := s.Observing
	if observing == nil {
		observing = func(error) {}
	}
	return &Observer{bucket: s.Bucket(bucket), log: s.Log(), observing: observing}, nil
}

// Leader returns the holder of a key. The error is [election.ErrNoLeader] if nobody holds the key, and wraps
// [election.ErrInvalidOption] if no key can have that name.
func (o *Observer) Leader(ctx context.Context, key string) (l election.Leader, err error) {
	if err := validate.Key(key); err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	var entry jetstream.KeyValueEntry
	info, err := o.load(ctx)
	if err == nil {
		entry, err = o.read(ctx, info, key, o.bucket.Get)
	}
	held := false
	switch {
	case err == nil:
		l, held = leaderOf(entry, info.LeaseTTL())
	case kv.Classify(err) != kv.Absent:
		return l, fmt.Errorf("leader of %q: %w", key, err)
	}
	if !held {
		return election.Leader{}, election.ErrNoLeader
	}
	return l, nil
}

// leaderOf returns the holder of the key of an entry, and false if nobody holds the key.
func leaderOf(entry jetstream.KeyValueEntry, ttl time.Duration) (election.Leader, bool) {
	l, held := election.LeaderOf(entry, ttl)
	if c, is := entry.(*claims.Entry); is {
		held = c.Loss == claims.Held
	}
	return l, held
}

// read reads what is stored under a key by the given method of the bucket, or what the records of a session and its claim say of the key.
func (o *Observer) read(ctx context.Context, info kv.Info, key string, get func(context.Context, string) (jetstream.KeyValueEntry, error)) (entry jetstream.KeyValueEntry, err error) {
	if info.SessionTTL > 0 {
		return claims.Get(ctx, o.bucket, info, key)
	}
	err = kv.UntilRefused(ctx, o.bucket.Conn(), o.bucket.ToRead(key), func(ctx context.Context) (err error) {
		entry, err = get(ctx, key)
		return err
	})
	return entry, err
}

// Leaders returns the holders of all keys of the bucket, sorted by key.
func (o *Observer) Leaders(ctx context.Context) (leaders []election.Leader, err error) {
	defer func() {
		if err != nil {
			leaders, err = nil, fmt.Errorf("leaders in %q: %w", o.bucket.Bucket(), err)
		}
	}()
	info, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	byKey := map[string]election.Leader{}
	err = o.all(ctx, nil, func(entry jetstream.KeyValueEntry) {
		delete(byKey, entry.Key()) // a key may change while all are read
		if l, held := leaderOf(entry, info.LeaseTTL()); held {
			byKey[l.Key] = l
		}
	})
	return slices.SortedFunc(maps.Values(byKey), func(a, b election.Leader) int { return cmp.Compare(a.Key, b.Key) }), err
}

// all calls each for all that is stored under the keys of the patterns, also for what removed a key. Without patterns that is the whole bucket.
func (o *Observer) all(ctx context.Context, patterns []string, each func(jetstream.KeyValueEntry)) error {
	w, err := o.watch(ctx, patterns)
	if err != nil {
		return err
	}
	defer kv.StopWatcher(w.KeyWatcher)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case delivered, ok := <-w.Updates():
			if !ok {
				return errors.New("the watcher ended")
			}
			if w.each(delivered, each) {
				return nil
			}
		}
	}
}

// watcher is a watcher of keys.
type watcher struct {
	jetstream.KeyWatcher
	claims *claims.Keys  // nil but in a bucket for sessions
	ttl    time.Duration // of a lease, as the bucket had it when the watcher began

	counted bool // as many updates have come as keys were stored when the watcher began
	more    bool // was on its way behind the last update
	all     bool // that was stored has come
}

// each calls a function for each key of which an update of the watcher says something. It reports whether all that was stored when the watcher began has
// come now. The client counts updates, and passes nil on after as many as keys were stored: a key that is renewed meanwhile counts twice, and then
// another is still to come.
func (w *watcher) each(update jetstream.KeyValueEntry, do func(jetstream.KeyValueEntry)) (complete bool) {
	if update == nil {
		w.counted = true
	} else {
		w.take(update, do)
		w.more = update.Delta() > 0
	}
	complete = w.counted && !w.more && !w.all
	if complete {
		w.all = true
		w.take(nil, do)
	}
	return complete
}

// take calls a function for each key of which an update says something, and nil, which comes once all that was stored has come.
func (w *watcher) take(update jetstream.KeyValueEntry, do func(jetstream.KeyValueEntry)) {
	switch {
	case w.claims != nil:
		for _, entry := range w.claims.Take(update) {
			do(entry)
		}
	case update != nil:
		do(update)
	}
}

// wait returns the time until leadership of a key counts that does not yet, and that nothing which is delivered says; false if there is none.
func (w *watcher) wait() (time.Duration, bool) {
	if w.claims == nil {
		return 0, false
	}
	return w.claims.Wait()
}

// counting calls a function for each key whose leadership has begun to count.
func (w *watcher) counting(do func(jetstream.KeyValueEntry)) {
	if w.claims != nil {
		for _, entry := range w.claims.Counting() {
			do(entry)
		}
	}
}

// watch starts a watcher of the keys of the patterns, or of the whole bucket.
func (o *Observer) watch(ctx context.Context, patterns []string) (*watcher, error) {
	info, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	w := &watcher{ttl: info.LeaseTTL()}
	patterns = slices.Clone(patterns) // nats.go makes subjects of them in place
	if info.SessionTTL > 0 {
		w.claims, patterns = claims.NewKeys(info), claims.Patterns(patterns)
	}
	w.KeyWatcher, err = o.bucket.StartWatcher(ctx, ">", func(ctx context.Context) (jetstream.KeyWatcher, error) {
		if len(patterns) == 0 {
			return o.bucket.WatchAll(ctx)
		}
		return o.bucket.WatchFiltered(ctx, patterns)
	})
	return w, err
}

// load returns what the server says about the bucket. Of a bucket of elections only the TTL is needed, and it asks once in a TTL: another TTL is noticed then. In
// a bucket for sessions the time of the server says whether a lease lasts.
func (o *Observer) load(ctx context.Context) (kv.Info, error) {
	known := o.known.Load()
	if known != nil && time.Since(known.at) < known.ttl {
		return kv.Info{TTL: known.ttl}, nil
	}
	loading := ctx
	if known != nil { // the server may not answer this, and answer reads
		var cancel context.CancelFunc
		loading, cancel = context.WithTimeout(ctx, timing.RequestTimeout/4)
		defer cancel()
	}
	info, err := o.bucket.LoadUntilRefused(loading)
	switch {
	case err == nil && info.TTL > 0:
		o.known.Store(&knownTTL{info.TTL, time.Now()})
	case err != nil && known != nil && !kv.IsGone(err):
		o.known.Store(&knownTTL{known.ttl, time.Now()})
		return kv.Info{TTL: known.ttl}, nil
	}
	return info, err
}

// knownTTL is the TTL of the bucket, as the server said at a time.
type knownTTL struct {
	ttl time.Duration
	at  time.Time
}

// Observe reports what happens in the elections of the given keys, which may have the wildcards of NATS subjects, or of all keys of the
// bucket. It begins with the current state: Elected or Leading for each key that is held, also if it is won while that state is still
// read. Then it reports every change and every renewal. After an interruption of the connection it reports where the changes meanwhile
// have led: the bucket has a history of one, so that a term which began and ended meanwhile leaves no trace.
//
// A slow reader blocks nobody. Up to 1,000 events wait in order, and behind them the latest event of each key. A reader that falls
// behind misses changes in between, but never the latest state of a key: the events of one key still come in order, those of different
// keys need not, and an Elected or Leading that waited has the Leader as it was last renewed. A key that was won and lost again
// meanwhile may not be reported at all.
//
// The channel is closed when ctx has ended. The error is about the start, and wraps [election.ErrInvalidOption] for a pattern that no
// key matches; later failures are logged, and tried again.
func (o *Observer) Observe(ctx context.Context, keys ...string) (<-chan Event, error) {
	for _, pattern := range keys {
		if err := validate.Pattern(pattern); err != nil {
			return nil, err
		}
	}
	run := &observation{Observer: o, patterns: slices.Clone(keys), keys: map[string]*keyState{}, queue: newQueue()}
	w, err := run.watch(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("observing %q: %w", o.bucket.Bucket(), err)
	}
	events := make(chan Event)
	go run.queue.deliver(ctx, events)
	go run.run(ctx, w)
	return events, nil
}
