// Package natstest runs real NATS servers within a test process: on virtual time, on
// loopback TCP, and as a cluster. Servers log nothing. The Cleanup of a test takes down
// everything that the test made here.
//
// Most tests want a server on virtual time, where an hour of waiting costs well
// under a second and a delay is exact to the nanosecond:
//
//	natstest.Bubble(t, func(t *testing.T) {
//		s := natstest.Start(t)
//		l := s.Link(t)                                // can be cut, stalled, made to lose replies
//		nc := natstest.Connect(t, l)                  // the client under test
//		kv := s.Bucket(t, nc, 10*time.Second)
//		watcher := s.Bucket(t, s.Connect(t), 10*time.Second) // over a perfect connection
//		…
//	})
//
// Rules for a bubble: make and close everything inside it, with the t of the function.
// Wait on channels or timers only, never on the real network or on a mutex that another
// goroutine keeps, because virtual time stops meanwhile. Tests that use bubbles do not run
// in parallel with other tests of their package.
//
// File storage, TCP and clusters run on the wall clock, outside bubbles.
package natstest

import (
	"context"
	"errors"
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
)

// BucketName is the bucket that the Bucket methods create or open.
const BucketName = "ELECTIONS"

const (
	// patience is how long helpers wait for something that must happen.
	patience = 20 * time.Second
	// clusterPatience is the same for things that take raft elections.
	clusterPatience = 60 * time.Second
	// pollInterval is how often helpers check.
	pollInterval = 10 * time.Millisecond

	reconnectWait = 50 * time.Millisecond
)

// Bubble runs f on virtual time, as synctest.Test does, so that f may start a server. The
// test fails if f leaves a blocked goroutine behind.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	// The first server of a process starts a goroutine, the clock for file access
	// times. Within a bubble that goroutine would never end.
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

// emptyPools empties all sync.Pools. nats.go and the server keep timers and channels in
// them, and a timer or channel of a bubble crashes the process if it is used outside.
// The content of a pool survives one garbage collection, but not two.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// testsPerProcessor is how many tests that may run in parallel do, for each processor: they wait for leases and for servers most of the
// time.
const testsPerProcessor = 8

// RunAtOnce has so many tests run in parallel for each processor, unless -parallel says how many. Call it before VerifyTestMain where that is too many.
func RunAtOnce(perProcessor int) {
	_ = flag.Set("test.parallel", strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0)))
	flag.Parse()
}

// gcPercent makes garbage collections rare: the heap of a test is so small that they took a sixth of the processor time.
const gcPercent = 400

// VerifyTestMain runs the tests of a package and fails if they leave goroutines behind. It ignores the server's clock for
// file access times, which stays registered if a server is shut down while it opens a store. With -short it leaves out the
// examples, which wait for leases on the wall clock and have no way to skip themselves.
func VerifyTestMain(m *testing.M, opts ...goleak.Option) {
	if !flag.Parsed() { // so that what is given counts
		RunAtOnce(testsPerProcessor)
	}
	if testing.Short() && flag.Lookup("test.skip").Value.String() == "" {
		_ = flag.Set("test.skip", "^Example")
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	goleak.VerifyTestMain(m, append(opts, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))...)
}

// Connect opens a client connection through a link; the test's Cleanup closes it. It
// reconnects for ever, every 50 ms, and has no handlers that print. Options given here
// come last and may change that.
func Connect(t testing.TB, l *faultproxy.Link, opts ...nats.Option) *nats.Conn {
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
	var nc *nats.Conn
	poll(t, patience, "connecting to the server", func(context.Context) (err error) {
		nc, err = nats.Connect(url, append(quiet, opts...)...)
		return err
	})
	t.Cleanup(nc.Close)
	return nc
}

// WithMarkers makes a bucket announce expired keys by markers that live for one TTL of
// the bucket, but at least for a second. Shorter markers, such as those of
// election.CreateBucket, make servers late on virtual time: a server that checks a marker
// in the very nanosecond of its end checks it again only a TTL after it was written.
func WithMarkers(cfg *jetstream.KeyValueConfig) {
	cfg.LimitMarkerTTL = max(cfg.TTL, time.Second)
}

// bucket creates or opens the bucket. It waits until the server is ready.
func bucket(t testing.TB, nc *nats.Conn, cfg jetstream.KeyValueConfig, wait time.Duration) jetstream.KeyValue {
	t.Helper()
	js := jetStream(t, nc)
	var made jetstream.KeyValue
	poll(t, wait, "bucket "+cfg.Bucket, func(ctx context.Context) error {
		var err error
		made, err = js.CreateKeyValue(ctx, cfg)
		if errors.Is(err, jetstream.ErrBucketExists) {
			made, err = js.KeyValue(ctx, cfg.Bucket)
		}
		return err
	})
	return made
}

func jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return js
}

// poll calls try until it returns nil. It fails the test if that takes longer than wait.
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

// attempt limits one try, so that poll repeats a request without an answer.
func attempt(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return try(ctx)
}

// ToKey returns a match, for a link, of what is published to a key of the bucket BucketName.
func ToKey(key string) func(faultproxy.Message) bool {
	subject := kv.Subject(BucketName, key)
	return func(m faultproxy.Message) bool { return m.Subject == subject }
}

// SkipIfShort skips a test that takes much time, with -short.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes much time: not with -short")
	}
}
