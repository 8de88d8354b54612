package standdown_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The bucket of the tests of restored copies, which run on the wall clock, and what follows from its TTL by default.
const (
	restoredTTL      = 3 * time.Second
	restoredInterval = restoredTTL * 3 / 4
	restoredLease    = restoredTTL - restoredTTL/10

	// busyHost is by how much a candidate may be late on a host that is busy with other tests.
	busyHost = 500 * time.Millisecond
	// sampling is by how much an overlap may be measured too long.
	sampling = 50 * time.Millisecond
)

// site is a bucket on servers that keep it in files.
type site struct {
	*testing.T
	*WithT
	name    string // of the bucket
	servers []*natstest.Server
	bucket  *election.Bucket // on a connection that nothing disturbs

	mu  sync.Mutex
	all []*resident
}

// resident is a candidate at a site.
type resident struct {
	*election.Election
	link  *faultproxy.Link
	nc    *nats.Conn
	log   Log
	works atomic.Bool          // it does the work of a leader
	led   chan struct{}        // receives when it begins to lead
	ended chan election.Reason // why its terms ended
}

func newSite(t *testing.T, name string, replicas int, nc *nats.Conn, servers []*natstest.Server) *site {
	t.Helper()
	g := NewWithT(t)
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	s := &site{T: t, WithT: g, name: name, servers: servers}
	s.request(func(ctx context.Context) (err error) {
		s.bucket, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: name, TTL: restoredTTL, Replicas: replicas})
		return err
	})
	return s
}

// join starts a candidate that campaigns until the test ends.
func (s *site) join(name string, opts ...election.Option) *resident {
	s.Helper()
	server := s.servers[len(s.all)%len(s.servers)]
	r := &resident{link: server.Link(s.T), led: make(chan struct{}, 100), ended: make(chan election.Reason, 100)}
	r.nc = natstest.Connect(s.T, r.link, nats.ReconnectBufSize(-1))
	js, err := jetstream.New(r.nc)
	s.Expect(err).NotTo(HaveOccurred())
	var bucket *election.Bucket
	s.request(func(ctx context.Context) (err error) {
		bucket, err = election.OpenBucket(ctx, js, s.name)
		return err
	})
	opts = append([]election.Option{election.WithLogger(r.log.Logger())}, opts...)
	r.Election, err = election.NewElection(name, Key, bucket, opts...)
	s.Expect(err).NotTo(HaveOccurred())
	s.mu.Lock()
	s.all = append(s.all, r)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
			r.works.Store(true)
			defer r.works.Store(false)
			r.led <- struct{}{}
			<-ctx.Done()
			var why *election.TermEndedError
			_ = errors.As(context.Cause(ctx), &why)
			r.ended <- why.Reason
			return nil
		})
	}()
	s.Cleanup(func() { r.link.Heal(); r.stop(); <-done })
	return r
}

// forget forgets the terms that have begun and ended.
func (r *resident) forget() {
	for len(r.led) > 0 {
		<-r.led
	}
	for len(r.ended) > 0 {
		<-r.ended
	}
}

func (r *resident) stop() { _ = r.Shutdown(context.Background()) }

// leads waits until the candidate leads.
func (s *site) leads(r *resident) {
	s.Helper()
	select {
	case <-r.led:
	case <-time.After(10 * restoredTTL):
		s.Fatal("it never leads: ", &r.log)
	}
}

// written returns the revision of the candidate's last write, as far as it knows; 0 if another holds the key.
func (r *resident) written() uint64 {
	if status := r.Status(); status.Leader != nil && status.Leader.Instance == status.Instance {
		return status.Leader.Revision
	}
	return 0
}

// renewed waits until one of the candidates has made a later write than the one with the given revision, and returns the revision of that write. That it is
// stored is not enough: if the bucket is deleted before the write is answered, its writer never knows that it was stored, and sees no rewind.
func (s *site) renewed(revision uint64, candidates ...*resident) (last uint64) {
	s.Helper()
	s.Eventually(func() uint64 {
		for _, r := range candidates {
			last = max(last, r.written())
		}
		return last
	}).WithTimeout(2*restoredTTL).Should(BeNumerically(">", revision), "the leader renews")
	return last
}

// request repeats a request until it succeeds: servers that start, and streams that have no leader yet, do not answer.
func (s *site) request(do func(ctx context.Context) error) {
	s.Helper()
	s.Eventually(func() error {
		ctx, cancel := context.WithTimeout(s.Context(), restoredTTL)
		defer cancel()
		return do(ctx)
	}).WithTimeout(time.Minute).Should(Succeed())
}

// reach waits until the server answers again.
func (s *site) reach() {
	s.Helper()
	s.request(func(ctx context.Context) error { _, err := s.bucket.Status(ctx); return err })
}

// moveOn has the revisions of the bucket go on by more than the key does in a test, and returns the last. So a challenger gets none that the leader had.
func (s *site) moveOn() (revision uint64) {
	s.Helper()
	for range 20 {
		s.request(func(ctx context.Context) (err error) {
			revision, err = s.bucket.PutString(ctx, "other", "value")
			return err
		})
	}
	return revision
}

// released reports whether the key shows a release.
func (s *site) released() bool {
	s.Helper()
	value, revision := s.stored()
	if revision == 0 {
		return false
	}
	r := record.Parse(value, revision)
	_, released := r.IsRelease()
	return released
}

// stored returns what one of the stream's replicas has for the key, and its revision, which is 0 if nothing is stored.
func (s *site) stored() (value []byte, revision uint64) {
	s.Helper()
	s.request(func(ctx context.Context) error {
		stream, err := s.bucket.JetStream().Stream(ctx, kv.StreamName(s.name))
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(ctx, kv.Subject(s.name, Key))
		switch {
		case err == nil:
			value, revision = m.Data, m.Sequence
		case errors.Is(err, jetstream.ErrMsgNotFound):
			value, revision, err = nil, 0, nil
		}
		return err
	})
	return value, revision
}

// leaders returns how many candidates lead.
func (s *site) leaders() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		if r.IsLeader() {
			n++
		}
	}
	return n
}

// overlaps measures, until the returned function is called, for how long two candidates lead.
func (s *site) overlaps() (end func() time.Duration) {
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var total time.Duration
		before, both := time.Now(), false
		for {
			select {
			case <-stop:
				result <- total
				return
			case <-time.After(2 * time.Millisecond):
			}
			now, two := time.Now(), s.leaders() > 1
			if both && two {
				total += now.Sub(before)
			}
			before, both = now, two
		}
	}()
	return func() time.Duration { close(stop); return <-result }
}

// past is the history of a key until the site is put back to an earlier copy.
type past struct {
	copied  copied
	age     time.Duration // of the copy, at least
	same    bool          // the leader that the copy shows leads on; else it stops in order, and another takes over
	then    string        // what happens to the leader just after its last renewal, and before the copy is put back
	follows bool          // the challenger was a follower of that leader; else it starts when the copy is back

	together time.Duration // for how long two may lead at most
}

// copied is what the copy shows.
type copied string

const (
	shownLease copied = "a lease"
	release    copied = "a release"
)

// What happens to a leader.
const (
	connected = "is connected"
	cutOff    = "is cut off"
	stopped   = "has stopped"
	crashed   = "has crashed"
)

func (p past) String() string {
	which, challenger := "the next leader", "a new challenger"
	if p.same {
		which = "the leader"
	}
	if p.follows {
		challenger = "a follower"
	}
	return fmt.Sprintf("%s, aged %v, %s %s, %s", p.copied, p.age, which, p.then, challenger)
}

// pasts are the histories that a copy is put back after.
var pasts = []past{
	// A challenger that knows nothing of the term after the release leads at once. A leader that sees the challenger's attempt renews within TTL/16 of
	// its last renewal; one that has to connect again reads the key within TTL/4.
	{copied: release, then: connected, together: restoredTTL/4 + busyHost},
	{copied: release, then: cutOff, together: restoredLease},
	{copied: release, then: cutOff, age: restoredTTL, together: restoredLease},
	{copied: release, then: stopped},
	{copied: release, then: crashed},
	// One that knows of a later revision does not believe the release.
	{copied: release, then: connected, follows: true},
	{copied: release, then: cutOff, follows: true},
	// The lease must end first, by the server's clock, and then the winner stands down as it does after any expiry.
	{copied: shownLease, then: connected},
	{copied: shownLease, then: cutOff, together: restoredLease - restoredInterval},
	{copied: shownLease, then: cutOff, age: restoredTTL, together: restoredLease - restoredInterval},
	{copied: shownLease, then: stopped},
	{copied: shownLease, then: crashed},
	{copied: shownLease, then: connected, same: true},
	{copied: shownLease, then: cutOff, same: true, together: restoredLease - restoredInterval},
	{copied: shownLease, then: cutOff, follows: true},
}

// check has the history happen, puts the copy back that take makes, and checks what follows.
func (p past) check(s *site, take func() (putBack func())) {
	s.Helper()
	leader := s.join("a", election.WithStandDown(0))
	s.leads(leader)
	s.renewed(leader.written(), leader)
	shown := time.Now() // when the lease began that the copy may show, or later
	if p.copied == release {
		leader.stop()
		for !s.released() { // a busy host has cost it its lease
			leader = s.join("a")
			s.leads(leader)
			leader.stop()
		}
	}
	_, before := s.stored()
	putBack := take()
	taken := time.Now()
	if !p.same {
		leader.stop()
		leader = s.join("b")
		s.leads(leader)
	}
	var challenger *resident
	if p.follows {
		challenger = s.join("c")
	}
	revision := s.moveOn()
	for led := false; !led || time.Since(taken) < p.age; led = leader.works.Load() && leader.IsLeader() {
		revision = s.renewed(revision, s.all...)
		leader.forget()
		if p.follows {
			challenger.forget()
			if challenger.IsLeader() { // a busy host has cost the leader its term
				leader, challenger = challenger, leader
			}
		}
	}
	switch p.then {
	case cutOff:
		leader.link.Cut()
	case stopped:
		leader.stop()
	case crashed:
		leader.nc.Close()
	}

	atOnce := 0
	if p.follows {
		atOnce = challenger.log.Count("stand-down=0s")
	}
	together := s.overlaps()
	_, last := s.stored()
	putBack()
	if p.then != connected && !p.follows { // nobody can have written it since
		s.Eventually(s.released).WithTimeout(10 * restoredTTL).Should(Equal(p.copied == release)) // a replica may be late to have anything
	}
	back := time.Now()
	if !p.follows {
		challenger = s.join("c")
	}
	led := "not"
	select {
	case <-challenger.led:
		led = time.Since(back).Round(time.Millisecond).String()
		switch {
		case p.copied == release && p.follows:
			s.Expect(challenger.log.Count("stand-down=0s")).To(Equal(atOnce), "it stands down: %s", &challenger.log)
		case p.copied == release:
			s.Expect(challenger.log.String()).To(ContainSubstring("reason=released"), "it waits for nobody")
		case p.copied == shownLease && p.age == 0:
			s.Expect(time.Since(shown)).To(BeNumerically(">=", restoredTTL), "it waits for the lease that the copy shows")
		}
	case <-time.After(2 * restoredTTL): // the leader may be the first to lead again
	}
	time.Sleep(time.Until(back.Add(restoredLease)))
	leader.link.Heal()
	s.Eventually(s.leaders).WithTimeout(10*restoredTTL).Should(Equal(1), "there is a leader again: %s", &challenger.log)
	overlap := together()
	s.Expect(overlap).To(BeNumerically("<=", p.together+sampling))
	var why election.Reason
	s.Eventually(leader.ended).WithTimeout(10*restoredTTL).Should(Receive(&why), func() string {
		_, now := s.stored()
		return fmt.Sprintf("the key had revision %d before the copy was made, %d before it was put back, and %d now; the leader %s\nthe challenger %s", before, last, now, &leader.log, &challenger.log)
	})
	s.Logf("measured: %s: two leaders for %v, the challenger led after %s, the leader's term ended: %s", p, overlap.Round(time.Millisecond), led, why)
	if p.then == connected {
		reasons := []election.Reason{election.ReasonRewound, election.ReasonDeadline} // the latter on a host too busy to renew
		if p.copied == shownLease {
			reasons = append(reasons, election.ReasonDeleted) // it has expired, and nothing is stored
		}
		s.Expect(why).To(BeElementOf(reasons))
	}
}

// A snapshot says when the bucket was created, so that nobody takes the restored bucket for another one.
func TestBucketRewoundToASnapshotHasTwoLeadersForNoLongerThanTheDocumentsSay(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
			var servers []*natstest.Server
			if replicas > 1 {
				servers = natstest.StartCluster(t, replicas).Servers()
			}
			for i, p := range pasts {
				t.Run(p.String(), func(t *testing.T) {
					t.Parallel()
					servers := servers
					if replicas == 1 { // restores on one server have a data race there
						servers = []*natstest.Server{natstest.StartTCP(t)}
					}
					nc := servers[i%len(servers)].Connect(t)
					s := newSite(t, fmt.Sprint("B", i), replicas, nc, servers)
					p.check(s, func() func() {
						snapshot := natstest.TakeSnapshot(t, nc, s.name)
						return func() { snapshot.Restore(t, nc) }
					})
				})
			}
		})
	}
}

func TestServerRewoundToACopyOfItsFilesHasTwoLeadersForNoLongerThanTheDocumentsSay(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, p := range pasts {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			server := natstest.StartTCP(t)
			s := newSite(t, natstest.BucketName, 1, server.Connect(t), []*natstest.Server{server})
			p.check(s, func() func() {
				server.Stop()
				putBack := server.BackUp(t)
				server.Resume(t)
				s.reach()
				return func() {
					server.Stop()
					putBack()
					server.Resume(t)
					s.reach()
				}
			})
		})
	}
}

// In a rewound bucket revisions come again. So a renewal that was held up may replace the record of a later leader that happens to have just the
// revision that the renewal is made over. Then the other leads on, and the later leader stands down as soon as it reads that.
func TestLateRenewalInARewoundBucketLeavesOneLeader(t *testing.T) {
	natstest.SkipIfShort(t)
	server := natstest.StartTCP(t)
	nc := server.Connect(t)
	s := newSite(t, natstest.BucketName, 1, nc, []*natstest.Server{server})
	a := s.join("a", election.WithStandDown(0))
	s.leads(a)
	a.stop()
	snapshot := natstest.TakeSnapshot(t, nc, s.name)
	b := s.join("b")
	s.leads(b)
	s.renewed(b.written(), b) // the second write of its term
	b.link.Stall()
	together := s.overlaps()
	snapshot.Restore(t, nc)
	c := s.join("c")
	s.leads(c)
	s.renewed(c.written(), c) // likewise
	b.link.Heal()
	s.Eventually(s.leaders).WithTimeout(10 * restoredTTL).Should(Equal(1))
	s.Consistently(s.leaders).WithTimeout(restoredTTL).Should(BeNumerically("<=", 1))
	overlap := together()
	s.Logf("measured: two leaders for %v, then the earlier one leads: %v", overlap.Round(time.Millisecond), b.IsLeader())
	s.Expect(overlap).To(BeNumerically("<=", restoredTTL), "two TTLs are documented")
}
