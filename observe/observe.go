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
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Observer reads who leads in the elections of a bucket. Its methods may be called by several goroutines.
type Observer struct {
	bucket *kv.Bucket
	log    *slog.Logger
	ttl    atomic.Int64 // of the bucket; 0 until it was read
}

// New returns an observer of the bucket. Of the options it uses [election.WithLogger] and [election.WithDebug], and
// [election.WithJetStream] if the bucket does not know its connection: with the connection it notices at once that this was made again.
// All other options are for candidates, and have no effect. The error wraps [election.ErrInvalidOption].
func New(bucket jetstream.KeyValue, opts ...election.Option) (*Observer, error) {
	s, err := settings.Of(opts, "observer", "observer", bucket)
	if err != nil {
		return nil, err
	}
	return &Observer{bucket: s.Bucket(bucket), log: s.Log()}, nil
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
	ttl, err := o.bucketTTL(ctx)
	if err == nil {
		err = kv.UntilRefused(ctx, o.bucket.Conn(), o.bucket.ToRead(key), func(ctx context.Context) (err error) {
			entry, err = o.bucket.Get(ctx, key)
			return err
		})
	}
	held := false
	switch {
	case err == nil:
		l, held = election.LeaderOf(entry, ttl)
	case kv.Classify(err) != kv.Absent:
		return l, fmt.Errorf("leader of %q: %w", key, err)
	}
	if !held {
		return election.Leader{}, election.ErrNoLeader
	}
	return l, nil
}

// Leaders returns the holders of all keys of the bucket, sorted by key.
func (o *Observer) Leaders(ctx context.Context) (leaders []election.Leader, err error) {
	defer func() {
		if err != nil {
			leaders, err = nil, fmt.Errorf("leaders in %q: %w", o.bucket.Bucket(), err)
		}
	}()
	ttl, err := o.bucketTTL(ctx)
	if err != nil {
		return nil, err
	}
	byKey := map[string]election.Leader{}
	err = o.all(ctx, nil, func(entry jetstream.KeyValueEntry) {
		delete(byKey, entry.Key()) // a key may change while all are read
		if l, held := election.LeaderOf(entry, ttl); held {
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
	defer kv.StopWatcher(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watcher ended")
			case entry == nil: // all that is stored has come
				return nil
			}
			each(entry)
		}
	}
}

// watch starts a watcher of the keys of the patterns, or of the whole bucket.
func (o *Observer) watch(ctx context.Context, patterns []string) (jetstream.KeyWatcher, error) {
	return o.bucket.StartWatcher(ctx, ">", func(ctx context.Context) (jetstream.KeyWatcher, error) {
		if len(patterns) == 0 {
			return o.bucket.WatchAll(ctx)
		}
		return o.bucket.WatchFiltered(ctx, slices.Clone(patterns)) // nats.go makes subjects of them in place
	})
}

// bucketTTL returns the TTL of the bucket. It asks the server once.
func (o *Observer) bucketTTL(ctx context.Context) (time.Duration, error) {
	if ttl := o.ttl.Load(); ttl > 0 {
		return time.Duration(ttl), nil
	}
	info, err := o.bucket.LoadUntilRefused(ctx)
	o.ttl.Store(int64(info.TTL))
	return info.TTL, err
}

// Observe reports what happens in the elections of the given keys, which may have the wildcards of NATS subjects, or of all keys of the
// bucket. It begins with the current state: Elected or Leading for each key that is held. Then it reports every change and every
// renewal. After an interruption of the connection it reports where the changes meanwhile have led: the bucket has a history of one, so
// that a term which began and ended meanwhile leaves no trace.
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
	ttl, err := o.bucketTTL(ctx)
	if err != nil {
		return nil, fmt.Errorf("observing %q: %w", o.bucket.Bucket(), err)
	}
	run := &observation{Observer: o, patterns: slices.Clone(keys), ttl: ttl, keys: map[string]*keyState{}, queue: newQueue()}
	w, err := run.watch(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("observing %q: %w", o.bucket.Bucket(), err)
	}
	events := make(chan Event)
	go run.queue.deliver(ctx, events)
	go run.run(ctx, w)
	return events, nil
}
