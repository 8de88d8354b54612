// Package fleettest runs candidates against a real server on virtual time, for the tests of packages that use elections or look at them
// from outside.
package fleettest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The bucket of a fleet, and what follows from its TTL by default.
const (
	TTL      = 10 * time.Second
	Interval = 7500 * time.Millisecond // of campaigns, and the stand-down
	Margin   = time.Second
	Lease    = TTL - Margin
	Key      = "scheduler"
	Instant  = time.Nanosecond // until everybody has done all that can be done now

	ReadyTimeout  = 100 * time.Millisecond // how long a candidate waits at its start for a source of notifications
	CheckInterval = Interval / 4           // from one health check to the next

	// Spread is the time within which candidates that are notified answer a release, ExpirySpread any other vacancy.
	Spread       = 50 * time.Millisecond
	ExpirySpread = TTL/16 + 5*time.Millisecond
)

// Cut cuts a link once nothing is on its way over it. Cut at any moment, it may have virtual time stand still: nats.go makes a watcher with a mutex
// locked, for which the first message of the watcher waits if the answer to the making of it is lost.
func Cut(l *faultproxy.Link) {
	time.Sleep(Instant)
	l.Cut()
}

// ToKey matches writes of the key of a fleet.
var ToKey = natstest.ToKey(Key)

// Fleet is a server on virtual time, whose candidates have a link to it each.
type Fleet struct {
	*testing.T
	*gomega.WithT
	Server  *natstest.Server
	Bucket  jetstream.KeyValue                // on a connection that nothing disturbs
	Changes []func(*jetstream.KeyValueConfig) // by which the bucket was made
}

// Run runs f with a fleet and a bucket that announces expiries, unless changes are given.
func Run(t *testing.T, f func(f *Fleet), changes ...func(*jetstream.KeyValueConfig)) {
	t.Helper()
	if len(changes) == 0 {
		changes = append(changes, natstest.WithMarkers)
	}
	run(t, func(*server.Options) {}, f, changes)
}

// RunGuarded is Run on a server with the users of a configuration, and a bucket that is republished. A connection without a user name
// has the permissions of the user that the configuration names in no_auth_user.
func RunGuarded(t *testing.T, config string, f func(f *Fleet)) {
	t.Helper()
	run(t, func(o *server.Options) {
		if err := o.ProcessConfigString(config); err != nil {
			t.Fatal(err)
		}
	}, f, []func(*jetstream.KeyValueConfig){Republished})
}

func run(t *testing.T, configure func(*server.Options), f func(f *Fleet), changes []func(*jetstream.KeyValueConfig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t, configure)
		f(&Fleet{T: t, WithT: gomega.NewWithT(t), Server: s, Bucket: s.Bucket(t, s.Connect(t), TTL, changes...), Changes: changes})
	})
}

// Republished makes a bucket as CreateBucket makes it.
func Republished(cfg *jetstream.KeyValueConfig) {
	natstest.WithMarkers(cfg)
	cfg.RePublish = &jetstream.RePublish{Source: "$KV." + cfg.Bucket + ".>", Destination: "election." + cfg.Bucket + ".>"}
	cfg.Metadata = map[string]string{kv.RemembersMetadata: "true"}
}

// WithoutMarkers makes a bucket as people make it by hand, or share it with Choria.
func WithoutMarkers(*jetstream.KeyValueConfig) {}

// JetStream returns JetStream on a connection of its own, as a user if options name one.
func (f *Fleet) JetStream(opts ...nats.Option) jetstream.JetStream {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T, opts...))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return js
}

// Open returns the bucket with a connection: as election.OpenBucket returns it.
func (f *Fleet) Open(nc *nats.Conn) *election.Bucket {
	f.Helper()
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	b, err := election.OpenBucket(context.Background(), js, natstest.BucketName)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return b
}

// Operator returns an operator on a connection of its own.
func (f *Fleet) Operator(opts ...nats.Option) *admin.Admin {
	f.Helper()
	a, err := admin.New(f.Open(f.Server.Connect(f.T, opts...)))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return a
}

// Bare returns the bucket without a connection: as other libraries open it.
func (f *Fleet) Bare(nc *nats.Conn) jetstream.KeyValue {
	f.Helper()
	return f.Server.Bucket(f.T, nc, TTL, f.Changes...)
}

// Connect returns the bucket as one more holder of a lock reaches it, and the holder's link.
func (f *Fleet) Connect() (*election.Bucket, *faultproxy.Link) {
	f.Helper()
	l := f.Server.Link(f.T)
	nc := natstest.Connect(f.T, l)
	f.Cleanup(func() { time.Sleep(TTL) }) // sessions end before their connection is closed
	return f.Open(nc), l
}

// Write stores a value under the key, as a program does that ignores elections.
func (f *Fleet) Write(value string) {
	f.Helper()
	_, err := f.Bucket.PutString(context.Background(), Key, value)
	f.Expect(err).NotTo(gomega.HaveOccurred())
}

// Stream returns the state of the stream behind the bucket.
func (f *Fleet) Stream() jetstream.StreamState {
	f.Helper()
	status, err := f.Bucket.Status(context.Background())
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return status.(*jetstream.KeyValueBucketStatus).StreamInfo().State
}

// Hanging returns a callback that does not return until it is released, or until the test ends: candidates wait for their callbacks.
func (f *Fleet) Hanging() (callback, release func()) {
	released, ended := make(chan struct{}), f.T.Context().Done()
	return func() {
		select {
		case <-released:
		case <-ended:
		}
	}, func() { close(released) }
}

// After lets time pass until everybody has done all that can be done then.
func After(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// UnlessShort returns how often a test repeats something: n times, or with -short a few times.
func UnlessShort(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}

// Get sends a handler one request.
func Get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// Disk is what a health check looks at: the check fails while the disk is full.
type Disk struct{ Full atomic.Bool }

// Check is the health check.
func (d *Disk) Check(context.Context) error {
	if d.Full.Load() {
		return errors.New("disk full")
	}
	return nil
}
