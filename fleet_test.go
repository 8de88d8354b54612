package election_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The bucket of the tests, and what follows from its TTL by default.
const (
	ttl      = fleettest.TTL
	interval = fleettest.Interval // of campaigns, and the stand-down
	margin   = time.Second
	lease    = ttl - margin
	key      = fleettest.Key
	instant  = fleettest.Instant // until every candidate has done all that can be done now

	readyTimeout = 100 * time.Millisecond // how long a candidate waits at its start for a source of notifications
)

var (
	after          = fleettest.After
	republished    = fleettest.Republished
	withoutMarkers = fleettest.WithoutMarkers
	toKey          = natstest.ToKey(key) // matches writes of the election's key
	once           = faultproxy.Once
)

// fleet is a server on virtual time, whose candidates record their callbacks.
type fleet struct{ *fleettest.Fleet }

// onVirtualTime runs a test with a fleet and a bucket that announces expiries, unless changes are given.
func onVirtualTime(t *testing.T, test func(f *fleet), changes ...func(*jetstream.KeyValueConfig)) {
	t.Helper()
	fleettest.Run(t, func(f *fleettest.Fleet) { test(&fleet{f}) }, changes...)
}

// onGuardedServer is onVirtualTime on a server with the users of a configuration, see fleettest.RunGuarded.
func onGuardedServer(t *testing.T, config string, test func(f *fleet)) {
	t.Helper()
	fleettest.RunGuarded(t, config, func(f *fleettest.Fleet) { test(&fleet{f}) })
}

// candidate is a candidate with a record of its callbacks.
type candidate struct {
	*election.Election
	fleet  *fleet
	link   *faultproxy.Link // nil if it has none of its own
	result chan error       // receives what Start or Run returns
	begun  time.Time

	mu     sync.Mutex
	events []string
}

// newCandidate makes a candidate of any factory below.
type newCandidate = func(name string, opts ...election.Option) *candidate

// candidate returns a candidate that does not know its connection and does not campaign yet. There is no splay unless an option sets one.
func (f *fleet) candidate(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.candidateOn(name, l, f.Bare(natstest.Connect(f.T, l)), opts...)
}

// connected returns a candidate that knows its connection.
func (f *fleet) connected(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.candidateOn(name, l, f.Open(natstest.Connect(f.T, l)), opts...)
}

// unnotified returns a candidate that receives no notifications: it finds everything out by its campaigns.
func (f *fleet) unnotified(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.candidateOn(name, l, fleettest.Unwatchable{KeyValue: f.Bare(natstest.Connect(f.T, l))}, opts...)
}

// faultyCandidate returns a candidate together with its bucket, whose calls the test can replace.
func (f *fleet) faultyCandidate(name string, opts ...election.Option) (*candidate, *faulty) {
	f.Helper()
	b := &faulty{KeyValue: f.Bucket}
	return f.candidateOn(name, nil, b, opts...), b
}

// candidateOn returns a candidate in the given bucket, which was opened over the link.
func (f *fleet) candidateOn(name string, l *faultproxy.Link, bucket jetstream.KeyValue, opts ...election.Option) *candidate {
	f.Helper()
	c := &candidate{fleet: f, link: l, result: make(chan error, 1), begun: time.Now()}
	opts = append([]election.Option{
		election.OnWon(func() { c.saw("won") }),
		election.OnLost(func() { c.saw("lost") }),
	}, opts...)
	c.Election = f.CandidateOn(name, l, bucket, opts...).Election
	return c
}

// election starts an election of any key without a splay, which campaigns until the test ends.
func (f *fleet) election(name, key string, bucket jetstream.KeyValue) *election.Election {
	f.Helper()
	e, err := election.NewElection(name, key, bucket, election.WithSplay(0))
	f.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	synctest.Wait()
	return e
}

// leaderAndFollower returns a candidate that leads, and another that it has seen lose.
func (f *fleet) leaderAndFollower() (leader, follower *candidate) {
	leader = f.connected("a").start()
	after(interval)
	follower = f.connected("b").start()
	after(3 * interval)
	return leader, follower
}

// leading returns a candidate that leads, after one stand-down.
func (f *fleet) leading(name string, opts ...election.Option) *candidate {
	f.Helper()
	c := f.candidate(name, opts...).start()
	after(interval)
	f.Expect(c.IsLeader()).To(BeTrue())
	return c
}

// forEachSource runs a test with each source of notifications: a watcher, and a bucket that is republished. With -short it runs only the
// latter.
func forEachSource(t *testing.T, test func(f *fleet, candidate newCandidate)) {
	if !testing.Short() {
		t.Run("watch", func(t *testing.T) { onVirtualTime(t, func(f *fleet) { test(f, f.candidate) }) })
	}
	t.Run("republish", func(t *testing.T) { onVirtualTime(t, func(f *fleet) { test(f, f.connected) }, republished) })
}

// start starts the candidate, which campaigns until the test ends.
func (c *candidate) start() *candidate {
	c.startWith(context.Background())
	return c
}

// standsDown waits until the candidate has won the key and leads, and returns the time between.
func (c *candidate) standsDown() time.Duration {
	for c.State() == election.CandidateState {
		after(10 * time.Millisecond)
	}
	won := time.Now()
	for !c.IsLeader() {
		after(10 * time.Millisecond)
	}
	return time.Since(won)
}

func (c *candidate) startWith(ctx context.Context) {
	go func() { c.result <- c.Start(ctx) }()
	c.fleet.Cleanup(c.shutdown)
	synctest.Wait()
}

// run runs the candidate with work for the leader until the test ends.
func (c *candidate) run(work func(ctx context.Context, t election.Term) error) *candidate {
	go func() { c.result <- c.Run(context.Background(), work) }()
	c.fleet.Cleanup(c.shutdown)
	synctest.Wait()
	return c
}

// shutdown stops the candidate, and waits until it has stopped.
func (c *candidate) shutdown() { _ = c.Shutdown(context.Background()) }

// saw records an event with the time since the candidate was made.
func (c *candidate) saw(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %v", what, time.Since(c.begun)))
}

// seen returns the recorded events.
func (c *candidate) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// record returns the record that is stored under the key, which may be a release; "" if none is.
func (f *fleet) record() string {
	value, _ := f.last()
	return value
}

// revision returns the revision of that record; 0 if none is stored.
func (f *fleet) revision() uint64 {
	_, revision := f.last()
	return revision
}

// awaitWrite returns as soon as something else is stored under the key. It does not read the key again and again: a test that waits for
// an interval in steps of 10 ms spends most of its time so.
func (f *fleet) awaitWrite() {
	f.Helper()
	writes, err := f.Server.Connect(f.T).SubscribeSync("$KV." + f.Bucket.Bucket() + "." + key)
	f.Expect(err).NotTo(HaveOccurred())
	for before := f.revision(); f.revision() == before; after(instant) { // until it is stored, if it is not refused
		_, err := writes.NextMsg(ttl)
		f.Expect(err).NotTo(HaveOccurred())
	}
	f.Expect(writes.Unsubscribe()).To(Succeed())
}

// last returns the record that is stored under the key, and its revision.
func (f *fleet) last() (value string, revision uint64) {
	w, err := f.Bucket.Watch(context.Background(), key)
	f.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = w.Stop() }()
	if e := <-w.Updates(); e != nil && kv.RemovalBy(e) == record.Kept {
		return string(e.Value()), e.Revision()
	}
	return "", 0
}

// configure changes the stream behind the bucket.
func (f *fleet) configure(change func(*jetstream.StreamConfig)) {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	stream, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	cfg := stream.CachedInfo().Config
	change(&cfg)
	_, err = js.UpdateStream(context.Background(), cfg)
	f.Expect(err).NotTo(HaveOccurred())
}

// remake deletes the bucket and makes it again.
func (f *fleet) remake(ttl time.Duration) {
	f.Helper()
	nc := f.Server.Connect(f.T)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
	f.Bucket = f.Server.Bucket(f.T, nc, ttl, f.Changes...)
}

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

// toKeyReply matches the replies to writes of the election's key.
func toKeyReply(m faultproxy.Message) bool { return m.Request == "$KV."+natstest.BucketName+"."+key }

// unlessShort returns how often a test repeats something: n times, or with -short a few times.
func unlessShort(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}

// logged collects log lines.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.lines.String(), what)
}

// crowd starts candidates with a delay on their links, and counts their attempts to win the key.
func (f *fleet) crowd(n int, candidate newCandidate) (all []*candidate, attempts *atomic.Int64) {
	attempts = new(atomic.Int64)
	for i := range n {
		c := candidate(fmt.Sprintf("crowd-%d", i), election.WithSplay(5*time.Second)).start()
		c.link.DelayReplies(2 * time.Millisecond)
		c.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) && !strings.Contains(string(m.Payload), `"term"`) {
				attempts.Add(1)
			}
		})
		all = append(all, c)
	}
	return all, attempts
}
