package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/observe"
	"github.com/natscampaign/election/semaphore"
)

const (
	bucketName = "ELECTIONS"
	key        = "scheduler"
)

func (g *ground) candidate(name string, opts ...election.Option) *candidate {
	g.Helper()
	l, nc := g.connect()
	return g.candidateOn(name, l, g.jetStream(nc), opts...)
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

// testStop stops the only candidate for longer than the TTL, and starts it again.
func testStop(t *testing.T, v version) {
	for _, choria := range []bool{false, true} {
		g := newGround(t, v, election.BucketConfig{TTL: ttl, ChoriaCompatible: choria})
		a := g.candidate("a")
		g.awaitLeader(a)
		g.Expect(a.Shutdown(t.Context())).To(Succeed())
		time.Sleep(ttl + 1500*time.Millisecond) // the key, and the marker of its expiry, would be gone
		waited := g.awaitLeader(g.candidate("b"))
		start := "at once"
		if v.atLeast(2, 11, 0) && !choria {
			g.Expect(waited).To(BeNumerically("<", ttl/2))
		} else {
			g.Expect(waited).To(BeNumerically(">=", ttl/2), "it stands down")
			start = "after a stand-down"
		}
		if !choria {
			v.saw("a start after a clean stop", "%s", start)
		}
	}
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

// testPermissions runs candidates with the permissions that docs/PERMISSIONS.md lists, to campaign, to read and to be notified by the bucket.
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
