// Package natstest runs real NATS servers within a test process: on virtual time, on
// loopback TCP, and as a cluster. Servers log nothing, and whatever a test makes here
// is taken down by its Cleanup.
//
// Most tests want a server on virtual time, where an hour of waiting costs well
// under a second and a delay is exact to the nanosecond:
//
//	natstest.Bubble(t, func(t *testing.T) {
//		s := natstest.Start(t)
//		l := s.Link(t)                                // can be cut, stalled, made to lose replies
//		nc := natstest.Connect(t, l)                  // the client under test
//		kv := s.Bucket(t, nc, 10*time.Second)
//		watcher := s.Bucket(t, s.Connect(t), 10*time.Second) // sees it all, over a perfect connection
//		…
//	})
//
// Rules for a bubble: everything is made and closed inside it, with the t that is
// handed in; what waits must wait on channels or timers, never on a mutex somebody
// keeps, nor on the real network, as the bubble's time stands still meanwhile. Tests
// that use bubbles do not run in parallel with others of their package.
//
// File storage, TCP and clusters run on the wall clock, outside bubbles.
package natstest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natscampaign/election/internal/link"
)

// BucketName is the bucket that the Bucket methods create or open.
const BucketName = "ELECTIONS"

const (
	// patience is how long helpers wait for something that is bound to happen.
	patience = 20 * time.Second
	// clusterPatience is the same for what takes raft elections.
	clusterPatience = 60 * time.Second
	// pollInterval is how often they look.
	pollInterval = 10 * time.Millisecond

	reconnectWait = 50 * time.Millisecond
)

// Bubble runs f on virtual time, as synctest.Test does, and prepares for a server in it.
// The test fails if a goroutine of f's is left blocked for good.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	// The server's clock for file access times is one goroutine per process that
	// the first server starts: within a bubble it would never end.
	ats.Register()
	defer ats.Unregister()
	emptyPools()
	defer emptyPools()
	if raceDetector {
		// Go 1.26 has one race context for all timers of a bubble: two goroutines
		// that select on timers which are due crash the process if they do so at once.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}

// emptyPools has sync.Pools forget what they hold. nats.go and the server keep timers
// and channels in them, and what was made in a bubble crashes the process when it is
// used outside of it. A pool's content survives one collection, but not two.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// VerifyTestMain runs the tests of a package and fails if they leave goroutines behind. The server's clock for file access
// times does not count: where a server is shut down while it opens a store, that is left registered for good.
func VerifyTestMain(m *testing.M, opts ...goleak.Option) {
	goleak.VerifyTestMain(m, append(opts, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))...)
}

// Connect opens a client connection through a link; the test's Cleanup closes it. It
// reconnects for ever, every 50 ms, and has no handlers that print. Options given here
// come last and may change that.
func Connect(t testing.TB, l *link.Link, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, "", append([]nats.Option{nats.InProcessServer(l)}, opts...)...)
}

func connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	quiet := []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default prints
	}
	nc, err := nats.Connect(url, append(quiet, opts...)...)
	if err != nil {
		t.Fatalf("natstest: connecting to the server: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// WithMarkers makes a bucket tell of expired keys, by markers that live for one TTL
// of the bucket, but for a second at least. Shorter ones, as election.CreateBucket has
// them, make servers late on virtual time: where nothing is left until a marker ends,
// to the nanosecond, they look at the keys again only when that marker were a TTL old.
func WithMarkers(cfg *jetstream.KeyValueConfig) {
	cfg.LimitMarkerTTL = max(cfg.TTL, time.Second)
}

// bucket creates or opens the bucket, and waits for a server that is about to be ready.
func bucket(t testing.TB, nc *nats.Conn, cfg jetstream.KeyValueConfig, wait time.Duration) jetstream.KeyValue {
	t.Helper()
	js := jetStream(t, nc)
	var kv jetstream.KeyValue
	poll(t, wait, "bucket "+cfg.Bucket, func(ctx context.Context) error {
		var err error
		kv, err = js.CreateKeyValue(ctx, cfg)
		if errors.Is(err, jetstream.ErrBucketExists) {
			kv, err = js.KeyValue(ctx, cfg.Bucket)
		}
		return err
	})
	return kv
}

func jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return js
}

// poll calls try until it returns nil, and fails the test if that takes too long.
func poll(t testing.TB, wait time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for {
		err := attempt(ctx, try)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("natstest: %s: not within %v: %v", what, wait, err)
		case <-time.After(pollInterval):
		}
	}
}

// attempt limits one try, so that a request nobody answers is made again.
func attempt(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return try(ctx)
}
