package matrix

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/fleettest"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/observe"
	"github.com/natscampaign/election/semaphore"
)

const (
	bucketName = "ELECTIONS"
	key        = "scheduler"
)

// ground is a server with a bucket.
type ground struct {
	*testing.T
	*WithT
	version
	server *natstest.Program
	js     jetstream.JetStream
	bucket *election.Bucket
}

func newGround(t *testing.T, v version, cfg election.BucketConfig, config ...string) *ground {
	t.Helper()
	g := &ground{T: t, WithT: NewWithT(t), version: v, server: natstest.StartProgram(t, v.program, config...)}
	_, nc := g.connect()
	g.Expect(nc.ConnectedServerVersion()).To(Equal(v.exact))
	g.js = g.jetStream(nc)
	cfg.Name = bucketName
	var err error
	g.bucket, err = election.CreateBucket(t.Context(), g.js, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	return g
}

// connect returns a connection over a link that a test can cut.
func (g *ground) connect(opts ...nats.Option) (*faultproxy.Link, *nats.Conn) {
	g.Helper()
	l := faultproxy.New(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(g.server.URL(), "nats://")) })
	g.Cleanup(l.Close)
	return l, natstest.Connect(g.T, l, append([]nats.Option{nats.ReconnectBufSize(-1)}, opts...)...)
}

func (g *ground) jetStream(nc *nats.Conn) jetstream.JetStream {
	g.Helper()
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	return js
}

// candidate is a candidate with a link of its own.
type candidate struct {
	*election.Election
	link *faultproxy.Link
	js   jetstream.JetStream
}

func (g *ground) candidate(name string, opts ...election.Option) *candidate {
	g.Helper()
	l, nc := g.connect()
	return g.candidateOn(name, l, g.jetStream(nc), opts...)
}

func (g *ground) candidateOn(name string, l *faultproxy.Link, js jetstream.JetStream, opts ...election.Option) *candidate {
	g.Helper()
	bucket, err := election.OpenBucket(g.Context(), js, bucketName)
	g.Expect(err).NotTo(HaveOccurred())
	return g.begin(name, l, js, bucket, opts...)
}

func (g *ground) begin(name string, l *faultproxy.Link, js jetstream.JetStream, bucket jetstream.KeyValue, opts ...election.Option) *candidate {
	g.Helper()
	e, err := election.NewElection(name, key, bucket, append([]election.Option{election.WithSplay(0)}, opts...)...)
	g.Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() { _ = e.Start(context.Background()); close(done) }()
	g.Cleanup(func() { e.Stop(); l.Heal(); <-done })
	return &candidate{e, l, js}
}

// awaitLeader returns how long it takes from now until a candidate leads.
func (g *ground) awaitLeader(c *candidate) time.Duration {
	g.Helper()
	began := time.Now()
	g.Eventually(c.IsLeader).WithTimeout(timeout).WithPolling(time.Millisecond).Should(BeTrue())
	return time.Since(began)
}

// awaitNotified waits until a leader can name the candidate as a successor.
func (g *ground) awaitNotified(c *candidate) {
	g.Helper()
	g.Eventually(func() *election.Leader { return c.Status().Leader }).WithTimeout(timeout).ShouldNot(BeNil())
}

func testBucket(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: 15 * time.Second})
	status, err := g.bucket.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	markers := time.Second
	if !v.atLeast(2, 11, 0) {
		markers = 0
	}
	g.Expect(status.LimitMarkerTTL()).To(Equal(markers))
	found, err := admin.Check(t.Context(), g.bucket)
	g.Expect(err).NotTo(HaveOccurred())
	var problems []string
	for _, f := range found {
		if f.Severity > admin.SeverityInfo {
			problems = append(problems, f.Code)
			if f.Code == "no-markers" {
				g.Expect(f.Fix).To(And(ContainSubstring(v.exact), ContainSubstring("2.11 or newer")))
			}
		}
	}
	if markers > 0 {
		g.Expect(problems).To(BeEmpty())
		v.saw("expiries", "announced")
	} else {
		g.Expect(problems).To(ConsistOf("no-markers"))
		v.saw("expiries", "not announced, which `check` warns of")
	}
}

func testFailovers(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: ttl})
	observer, err := observe.New(g.bucket)
	g.Expect(err).NotTo(HaveOccurred())
	events, err := observer.Observe(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())

	a := g.candidate("a")
	g.awaitLeader(a)
	first, _ := a.Term()
	b := g.candidate("b")
	g.awaitNotified(b)
	g.Expect(b.Status().Notifications).To(Equal("republish"))
	v.saw("notified by", "what the bucket republishes")
	began := time.Now()
	a.Stop()
	g.awaitLeader(b)
	handover := time.Since(began)
	g.Expect(handover).To(BeNumerically("<", ttl/2), "the release named its successor")
	second, _ := b.Term()
	g.Expect(second.Token() > first.Token()).To(BeTrue())

	c := g.candidate("c")
	g.awaitNotified(c)
	began = time.Now()
	b.link.Cut()
	g.awaitLeader(c)
	crash := time.Since(began)
	g.Expect(second.Valid()).To(BeFalse(), "no two lead")
	third, _ := c.Term()
	g.Expect(third.Token() > second.Token()).To(BeTrue())
	v.saw("handover, crash, fencing tokens", "work")
	t.Logf("%s: handover in %v, crash in %v at a TTL of %v", v.exact, handover.Round(time.Millisecond), crash.Round(time.Millisecond), ttl)

	want := []observe.EventKind{observe.Released, observe.Expired}
	for len(want) > 0 {
		var e observe.Event
		g.Eventually(events).WithTimeout(timeout).Should(Receive(&e))
		if e.Kind >= observe.Released {
			g.Expect(e.Kind).To(Equal(want[0]))
			want = want[1:]
		}
	}
	v.saw("package observe", "works")
}

func testRestart(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: 15 * time.Second})
	a := g.candidate("a", election.WithCampaignInterval(time.Second))
	g.awaitLeader(a)
	term, _ := a.Term()
	revision := func() uint64 {
		entry, err := g.bucket.Get(t.Context(), key)
		if err != nil {
			return 0 // the server is not back
		}
		return entry.Revision()
	}
	before := revision()
	g.server.Kill()
	g.server.Resume(t)
	g.Eventually(revision).WithTimeout(timeout).Should(BeNumerically(">", before))
	g.Expect(term.Valid()).To(BeTrue(), "the same term goes on")
	v.saw("a killed server that returns in time", "ends no term")
}

func testOperators(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: ttl})
	operator, err := admin.New(g.bucket)
	g.Expect(err).NotTo(HaveOccurred())
	a := g.candidate("a")
	g.awaitLeader(a)
	b := g.candidate("b")
	g.awaitNotified(b)
	g.Eventually(func() ([]admin.Candidate, error) { return operator.Candidates(t.Context(), key) }).WithTimeout(timeout).Should(HaveLen(2))
	g.Expect(operator.Transfer(t.Context(), key, "b")).To(Succeed())
	g.Expect(b.IsLeader()).To(BeTrue())
	g.Expect(operator.Resign(t.Context(), key)).To(Succeed())
	g.awaitLeader(a)
	g.Expect(operator.Pause(t.Context(), key)).To(Succeed())
	g.Expect(operator.Paused(t.Context())).To(ConsistOf(key))
	g.Expect(operator.Resign(t.Context(), key)).To(Succeed())
	g.Consistently(func() bool { return a.IsLeader() || b.IsLeader() }, ttl).Should(BeFalse())
	g.Expect(operator.Resume(t.Context(), key)).To(Succeed())
	g.Eventually(func() bool { return a.IsLeader() || b.IsLeader() }).WithTimeout(timeout).Should(BeTrue())
	evicted, err := operator.Evict(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() bool { l, err := a.Leader(t.Context()); return err == nil && l.Term > evicted.Term }).WithTimeout(timeout).Should(BeTrue())
	v.saw("transfer, resign, pause, evict", "work")
}

func testLocks(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: ttl})
	lock := func(name string) *mutex.Mutex {
		m, err := mutex.New(name, "lock", g.bucket)
		g.Expect(err).NotTo(HaveOccurred())
		return m
	}
	a, b := lock("a"), lock("b")
	g.Expect(a.Lock(t.Context())).To(Succeed())
	g.Expect(b.TryLock(t.Context())).To(MatchError(mutex.ErrLocked))
	locked := make(chan error, 1)
	go func() { locked <- b.Lock(t.Context()) }()
	g.Consistently(locked, "200ms").ShouldNot(Receive())
	g.Expect(a.Unlock()).To(Succeed())
	g.Eventually(locked).WithTimeout(timeout).Should(Receive(BeNil()))
	g.Expect(b.Unlock()).To(Succeed())

	slots, err := semaphore.New("a", "slots", 2, g.bucket)
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		slot, err := slots.Acquire(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { g.Expect(slot.Release()).To(Succeed()) }()
	}
	_, err = slots.TryAcquire(t.Context())
	g.Expect(err).To(HaveOccurred())

	var members []*group.Group
	for _, name := range []string{"web-1", "web-2"} {
		m, err := group.New(name, "shards", []string{"0", "1", "2", "3"}, g.bucket)
		g.Expect(err).NotTo(HaveOccurred())
		done := make(chan error, 1)
		go func() { done <- m.Start(context.Background()) }()
		t.Cleanup(func() { m.Stop(); g.Expect(<-done).To(Succeed()) })
		members = append(members, m)
	}
	g.Eventually(func() []int { return []int{len(members[0].Keys()), len(members[1].Keys())} }).WithTimeout(timeout).Should(Equal([]int{2, 2}))
	v.saw("packages mutex, semaphore, group", "work")
}

// testFence has two leaders at once, by a purge of the bucket and without a stand-down, and has the older one write too.
func testFence(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: time.Minute})
	_, err := g.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, AllowAtomicPublish: true})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = g.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "STATE"})
	g.Expect(err).NotTo(HaveOccurred())
	leader := func(name string) (*candidate, election.Term) {
		l, nc := g.connect()
		js := g.jetStream(nc)
		bare, err := js.KeyValue(t.Context(), bucketName)
		g.Expect(err).NotTo(HaveOccurred())
		c := g.begin(name, l, js, fleettest.Unwatchable{KeyValue: bare}, election.WithStandDown(0))
		g.awaitLeader(c)
		term, _ := c.Term()
		return c, term
	}
	a, term := leader("a")
	older, err := fence.OpenStream(t.Context(), a.js, "RESULTS", "results.epoch", term)
	stored := g.storedForAnOldEpoch()
	if !v.atLeast(2, 11, 7) {
		g.Expect(err).To(MatchError(ContainSubstring("2.11.7 or newer")))
		_, err = fence.OpenBucket(t.Context(), a.js, "STATE", term)
		g.Expect(err).To(MatchError(ContainSubstring("2.11.7 or newer")))
		g.Expect(stored).NotTo(BeZero(), "the refusal has a reason")
		v.saw("package fence", "refuses to open a stream")
		v.saw("its batches", "none")
		return
	}
	g.Expect(stored).To(BeZero())
	g.Expect(err).NotTo(HaveOccurred())
	olderState, err := fence.OpenBucket(t.Context(), a.js, "STATE", term)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = older.PublishBatch(t.Context(), nats.NewMsg("results.x"), nats.NewMsg("results.y"))
	g.Expect(err).NotTo(HaveOccurred())
	revision, err := olderState.Create(t.Context(), "x", []byte("1"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(older.Atomic()).To(Equal(v.atLeast(2, 12, 0)))

	s, err := g.js.Stream(t.Context(), "KV_"+bucketName)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Purge(t.Context())).To(Succeed())
	b, next := leader("b")
	newer, err := fence.OpenStream(t.Context(), b.js, "RESULTS", "results.epoch", next)
	g.Expect(err).NotTo(HaveOccurred())
	newerState, err := fence.OpenBucket(t.Context(), b.js, "STATE", next)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(term.Valid()).To(BeTrue(), "it does not know")
	_, err = older.Publish(t.Context(), "results.x", nil)
	g.Expect(err).To(MatchError(fence.ErrFenced))
	_, err = olderState.Update(t.Context(), "x", []byte("2"), revision)
	g.Expect(err).To(MatchError(fence.ErrFenced))
	_, err = newer.Publish(t.Context(), "results.x", nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newerState.Update(t.Context(), "x", []byte("2"), revision)
	g.Expect(err).NotTo(HaveOccurred())
	v.saw("package fence", "works")
	batches := "one by one"
	if newer.Atomic() {
		batches = "atomic"
	}
	v.saw("its batches", "%s", batches)
}

// storedForAnOldEpoch publishes messages with the demand of an epoch that is over, and returns how many of a hundred are stored. The order of
// their headers is random.
func (g *ground) storedForAnOldEpoch() (stored int) {
	g.Helper()
	_, err := g.js.CreateStream(g.Context(), jetstream.StreamConfig{Name: "RAW", Subjects: []string{"raw.>"}})
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		_, err = g.js.Publish(g.Context(), "raw.epoch", nil)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for range 100 {
		m := nats.NewMsg("raw.x")
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "1")
		m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, "raw.epoch")
		if _, err := g.js.PublishMsg(g.Context(), m); err == nil {
			stored++
		}
	}
	g.Logf("%s: %d of 100 writes for an old epoch are stored", g.exact, stored)
	return stored
}

// testPermissions runs candidates with the permissions that docs/REFERENCE.md lists, to campaign, to read and to be notified by the bucket.
func testPermissions(t *testing.T, v version) {
	const config = `
		no_auth_user: owner
		authorization: { users: [
			{ user: owner, password: x }
			{ user: candidate, password: x, permissions: {
				publish: [ "$KV.ELECTIONS.scheduler", "$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler" ]
				subscribe: [ "_INBOX.>", "election.ELECTIONS.>", "$KV.ELECTIONS.>" ]
			} }
		] }`
	g := newGround(t, v, election.BucketConfig{TTL: ttl}, config)
	start := func(name string) *candidate {
		l, nc := g.connect(nats.UserInfo("candidate", "x"))
		return g.candidateOn(name, l, g.jetStream(nc))
	}
	a := start("a")
	g.awaitLeader(a)
	b := start("b")
	g.awaitNotified(b)
	g.Expect(b.Status().Notifications).To(Equal("republish"))
	began := time.Now()
	a.Stop()
	g.awaitLeader(b)
	g.Expect(time.Since(began)).To(BeNumerically("<", ttl/2))
	v.saw("the documented permissions", "are enough")
}

func testChoria(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: ttl, ChoriaCompatible: true})
	a := g.candidate("a", election.WithPlainValue())
	g.awaitLeader(a)
	entry, err := g.bucket.Get(t.Context(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(entry.Value())).To(Equal("a"))
	b := g.candidate("b", election.WithPlainValue())
	g.awaitNotified(b)
	a.Stop()
	g.awaitLeader(b)
	v.saw("buckets for candidates of Choria", "work")
}
