package election

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/watch"
)

// Observer sees who leads in the elections of a bucket, without standing in any. What it says may be a moment old, and a
// little more on a replicated bucket: it is for people, for metrics and for finding the leader, and never a reason to do
// what only a leader may.
type Observer struct {
	bucket jetstream.KeyValue
	opts   options
	log    *slog.Logger
	ttl    atomic.Int64 // of the bucket; 0 until it was read
}

// NewObserver returns an observer of the bucket. It needs permission to read the stream's state and the keys, and for
// [Observer.Leaders] and [Observer.Observe] to create a consumer. [WithLogger] and [WithDebug] say where it logs, and with
// [WithJetStream] it sees at once that its connection was made again; all other options are for candidates, and count for
// nothing. The error wraps [ErrInvalidOption].
func NewObserver(bucket jetstream.KeyValue, opts ...Option) (*Observer, error) {
	o := collect(opts)
	if err := o.validate("observer", "observer", bucket); err != nil {
		return nil, err
	}
	return &Observer{bucket: bucket, opts: o, log: o.slog()}, nil
}

// Leader returns who leads in the election of the key: see [Election.Leader].
func (o *Observer) Leader(ctx context.Context, key string) (Leader, error) {
	if err := validateKey(key); err != nil {
		return Leader{}, err
	}
	ttl, err := o.lifetime(ctx)
	if err != nil {
		return Leader{}, fmt.Errorf("leader of %q: %w", key, err)
	}
	return readLeader(ctx, o.bucket, key, ttl)
}

// Leaders returns who leads in each election of the bucket that has a leader, sorted by key.
func (o *Observer) Leaders(ctx context.Context) ([]Leader, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ttl, err := o.lifetime(ctx)
	if err != nil {
		return nil, fmt.Errorf("leaders in %q: %w", o.bucket.Bucket(), err)
	}
	w, err := o.bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("leaders in %q: %w", o.bucket.Bucket(), err)
	}
	defer watch.Stop(w)
	leaders := map[string]Leader{}
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("leaders in %q: %w", o.bucket.Bucket(), ctx.Err())
		case entry, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("leaders in %q: the watcher ended", o.bucket.Bucket())
			}
			if entry == nil {
				return slices.SortedFunc(maps.Values(leaders), func(a, b Leader) int { return strings.Compare(a.Key, b.Key) }), nil
			}
			r := parseRecord(entry.Value())
			delete(leaders, entry.Key()) // a key may change while it is told
			if _, released := r.released(); !released {
				leaders[entry.Key()] = r.leader(entry.Key(), entry.Revision(), entry.Created(), ttl)
			}
		}
	}
}

// lifetime returns the bucket's TTL.
func (o *Observer) lifetime(ctx context.Context) (time.Duration, error) {
	if ttl := o.ttl.Load(); ttl > 0 {
		return time.Duration(ttl), nil
	}
	status, err := o.bucket.Status(ctx)
	if err != nil {
		return 0, err
	}
	o.ttl.Store(int64(status.TTL()))
	return status.TTL(), nil
}

// EventKind is what happened in an election.
type EventKind uint

const (
	// Elected is the win of the key. Leadership does not count yet, unless Leading follows.
	Elected EventKind = iota + 1
	// Leading is the first renewal from which leadership counts.
	Leading
	// Renewed is any other renewal.
	Renewed
	// Released is that the holder let go of the key.
	Released
	// Expired is that the holder had not renewed it for a TTL.
	Expired
	// Evicted is that somebody else deleted the key or wrote over it.
	Evicted
)

var eventNames = [...]string{"unknown", "elected", "leading", "renewed", "released", "expired", "evicted"}

// String returns "elected", "leading", "renewed", "released", "expired" or "evicted".
func (k EventKind) String() string {
	if k > 0 && k < EventKind(len(eventNames)) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint(k))
}

// MarshalText returns what String does.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *EventKind) UnmarshalText(text []byte) error {
	if i := slices.Index(eventNames[1:], string(text)); i >= 0 {
		*k = EventKind(i + 1)
		return nil
	}
	return fmt.Errorf("unknown kind of event %q: known are %s", text, strings.Join(eventNames[1:], ", "))
}

// Event is one thing that happened in an election.
type Event struct {
	Kind   EventKind `json:"kind"`
	Key    string    `json:"key"`
	Leader Leader    `json:"leader"` // who holds the key after the event, or held it before it was released, expired or evicted
	At     time.Time `json:"at"`     // by the server's clock or, for what no server tells, by this host's
}

// ends says whether nobody holds the key after the event.
func (e Event) ends() bool { return e.Kind >= Released }

// Observe tells what happens in the elections of the given keys, which may have wildcards as subjects do, or of all keys
// of the bucket. First comes the current state: Elected or Leading for each key that is held. After that it tells every
// change, and renewals. Of what happens while the server cannot be reached it tells afterwards where that has led: with a
// history of one, a term that began and ended meanwhile leaves no trace.
//
// A slow reader blocks nobody. For it up to 1,000 events wait in order, and behind these the latest event of each key: a
// reader that falls behind misses changes in between, and never the latest state of a key. Then the events of a key still
// come in order, those of different keys need not. A renewal that is missed still counts: an Elected or Leading that waits is
// told with the Leader as it was last renewed. A key that was won and lost again meanwhile may not be told at all.
//
// The channel is closed when ctx has ended. The error is about the start, and wraps [ErrInvalidOption] if a key cannot be
// used; later trouble is logged, and overcome.
func (o *Observer) Observe(ctx context.Context, keys ...string) (<-chan Event, error) {
	for _, key := range keys {
		if err := validatePattern(key); err != nil {
			return nil, err
		}
	}
	ttl, err := o.lifetime(ctx)
	if err != nil {
		return nil, fmt.Errorf("observing %q: %w", o.bucket.Bucket(), err)
	}
	s := &observation{observer: o, keys: slices.Clone(keys), ttl: ttl, sights: map[string]*sight{}, queue: newQueue()}
	w, err := s.watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("observing %q: %w", o.bucket.Bucket(), err)
	}
	out := make(chan Event)
	go s.queue.pump(ctx, out)
	go s.run(ctx, w)
	return out, nil
}

// validatePattern checks a key that may have wildcards.
func validatePattern(pattern string) error {
	plain := strings.ReplaceAll(pattern, "*", "x")
	if rest, ok := strings.CutSuffix(plain, ".>"); ok || plain == ">" {
		plain = rest + "x"
	}
	if validateKey(plain) != nil {
		return invalid("%q is neither a key nor a pattern of keys: use letters, digits, and - _ = / with single dots between them, * for any one part, or > for all the rest", pattern)
	}
	return nil
}
