package election

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/settings"
)

// written returns a lease that is as old as each of the clocks says.
func written(state State, length, mono, wall, boot time.Duration) *leaseState {
	r, now := lease.Read(), time.Now()
	r.Mono, r.Wall, r.Boot = r.Mono-mono, r.Wall-wall, r.Boot-boot
	return &leaseState{timing: &settings.Timing{TTL: time.Hour}, Lease: lease.New(r.Instant, length, r, r), state: state, deadline: moveWall(now.Add(length-mono), mono-wall)}
}

// leadingFor returns an election with a lease of an hour that is as old as each of the clocks says.
func leadingFor(t *testing.T, mono, wall, boot time.Duration) (*Election, *activeTerm) {
	t.Helper()
	now := time.Now()
	held := newActiveTerm(t.Context(), &config{}, &dispatcher{callbacks: &callbacks{}}, Term{Number: 5}, &settings.Timing{TTL: time.Hour, Interval: 45 * time.Minute}, 0, now, now, 0)
	held.lease.Store(written(LeaderState, time.Hour, mono, wall, boot))
	t.Cleanup(func() {
		held.end(ReasonDeleted)
		held.expiry.Stop()
	})
	e := &Election{}
	e.now.Store(&snapshot{running: true, term: held})
	return e, held
}

// AgeLease replaces the lease of a term by a lease of an hour that is as old as each of the clocks says.
func AgeLease(term Term, mono, wall, boot time.Duration) {
	term.active.lease.Store(written(LeaderState, time.Hour, mono, wall, boot))
}

// needsThirdClock skips a test on a system without a clock that counts suspension.
func needsThirdClock(t *testing.T) {
	t.Helper()
	if _, ok := lease.SinceBoot(); !ok {
		t.Skip("no clock here counts suspension")
	}
}

// moveWall changes the wall clock reading of a time and keeps the monotonic reading. The first word of a time holds the seconds of the
// wall clock above 30 bits of nanoseconds. Its highest bit shows that there is a monotonic reading.
func moveWall(t time.Time, by time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&t))
	wall := time.Duration(*word<<1>>31)*time.Second + time.Duration(*word&(1<<30-1)) + by
	*word = 1<<63 | uint64(wall/time.Second)<<30 | uint64(wall%time.Second)
	return t
}

func TestWallClockStepEndsNoLeadership(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{2 * time.Hour, time.Second, -time.Second, -24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			g := NewWithT(t)
			e, held := leadingFor(t, 10*time.Minute, 10*time.Minute+step, 10*time.Minute)
			g.Expect(e.IsLeader()).To(BeTrue())
			term, ok := e.Term()
			g.Expect(ok).To(BeTrue())
			g.Expect(term.Valid()).To(BeTrue())
			g.Expect(e.State()).To(Equal(LeaderState))
			g.Expect(time.Until(term.Deadline())).To(BeNumerically("~", 50*time.Minute, 5*time.Second))
			g.Expect(term.Deadline().Round(0)).To(BeTemporally("~", time.Now().Round(0).Add(50*time.Minute), 5*time.Second), "by the present wall clock")
			g.Expect(held.remaining()).To(BeNumerically("~", 50*time.Minute, 5*time.Second))
			g.Expect(-held.lease.Load().left(time.Now())).To(BeNumerically("<", 0))
			g.Expect(e.stuck()).To(BeEmpty())
			g.Expect(held.end(ReasonDeadline)).To(BeFalse())

			g.Expect(held.lease.Load().Agreed(lease.Of(time.Now()))).To(BeFalse())
			g.Expect(held.renewed(6, 0, time.Now())).To(BeTrue())
			g.Expect(held.lease.Load().Agreed(lease.Of(time.Now()))).To(BeTrue(), "the third clock is not needed any more")
			g.Expect(e.IsLeader()).To(BeTrue())
		})
	}
}

func TestSuspensionEndsLeadershipAtAnyWallClock(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -59 * time.Minute, -61 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			g := NewWithT(t)
			e, held := leadingFor(t, 10*time.Minute, 70*time.Minute+step, 70*time.Minute)
			g.Expect(e.IsLeader()).To(BeFalse())
			_, ok := e.Term()
			g.Expect(ok).To(BeFalse())
			term := Term{active: held}
			g.Expect(term.Valid()).To(BeFalse())
			g.Expect(e.State()).To(Equal(CandidateState))
			g.Expect(time.Until(term.Deadline())).To(BeNumerically("~", -10*time.Minute, 5*time.Second))
			g.Expect(held.remaining()).To(BeZero())
			g.Expect(-held.lease.Load().left(time.Now())).To(BeNumerically("~", 10*time.Minute, 5*time.Second))
			g.Expect(held.renewed(6, 0, time.Now())).To(BeFalse())
			g.Expect(held.end(ReasonDeadline)).To(BeTrue())
			g.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()))
		})
	}
}

func TestWallClockStepDuringAWriteEndsNoLeadership(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{2 * time.Hour, time.Second, -time.Second, -2 * time.Hour} {
		g := NewWithT(t)
		now := time.Now()
		tm := &settings.Timing{TTL: time.Hour, Interval: 45 * time.Minute}
		held := newActiveTerm(t.Context(), &config{}, &dispatcher{callbacks: &callbacks{}}, Term{}, tm, 0, moveWall(now, -step), now, 0)
		defer held.end(ReasonDeleted)
		g.Expect(held.remaining()).To(BeNumerically("~", time.Hour, 5*time.Second))
		g.Expect(held.renewed(2, 0, moveWall(time.Now(), -step))).To(BeTrue())
		g.Expect(held.leads()).To(BeTrue())
		g.Expect(time.Until(Term{active: held}.Deadline())).To(BeNumerically("~", time.Hour, 5*time.Second))
	}
}

// In this test the machine was suspended for 50 minutes during the last five, and the renewal was sent one minute ago.
func TestSuspensionDuringARenewalShortensTheLease(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -30 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		g := NewWithT(t)
		_, held := leadingFor(t, 5*time.Minute, 55*time.Minute, 55*time.Minute)
		sent := moveWall(time.Now().Add(-time.Minute), -50*time.Minute-step)
		g.Expect(held.renewed(2, 0, sent)).To(BeTrue())
		g.Expect(held.remaining()).To(BeNumerically("~", 9*time.Minute, 5*time.Second), "%v", step)
	}
}

// bucketName is a bucket that has no more than a name.
type bucketName struct{ jetstream.KeyValue }

func (bucketName) Bucket() string { return "B" }

func TestStatusDoesNotContradictItselfWhileTheStateChanges(t *testing.T) {
	natstest.SkipIfShort(t)
	e, leader := leadingFor(t, 0, 0, 0)
	e.bucket = kv.With(bucketName{}, nil)
	_, elect := leadingFor(t, 0, 0, 0)
	elect.lease.Store(written(LeaderElectState, time.Hour, 0, 0, 0))
	done, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		for !isClosed(done) {
			for _, held := range []*activeTerm{leader, elect, nil} {
				e.now.Store(&snapshot{running: true, term: held})
			}
		}
	}()
	for range 100_000 {
		s := e.Status()
		if s.IsLeader != (s.State == LeaderState) || (s.LeaseRemaining > 0) != (s.State != CandidateState) {
			t.Errorf("is leader: %v, state: %v, lease: %v", s.IsLeader, s.State, s.LeaseRemaining)
			break
		}
	}
	close(done)
	<-changed
}

func TestAcknowledgementAfterASuspensionExtendsNoLease(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	tm := &settings.Timing{TTL: time.Minute, Interval: 45 * time.Second}
	held := newActiveTerm(t.Context(), &config{}, &dispatcher{callbacks: &callbacks{}}, Term{}, tm, 0, now, now, 0)
	held.lease.Store(written(LeaderState, time.Minute, 0, 2*time.Minute, 2*time.Minute))
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.renewed(2, 0, now)).To(BeFalse())
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.end(ReasonDeadline)).To(BeTrue())
	g.Expect(held.renewed(3, 0, time.Now())).To(BeFalse())
	g.Expect(held.expiry.Stop()).To(BeFalse(), "the timer has stopped")
}

// Others go by the lease that the record states: the TTL may have become longer since it was written.
func TestLeaseIsNoLongerThanTheRecordStates(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	timing := func(ttl time.Duration) *settings.Timing { return &settings.Timing{TTL: ttl, Interval: ttl / 2} }
	held := newActiveTerm(t.Context(), &config{}, &dispatcher{callbacks: &callbacks{}}, Term{}, timing(time.Minute), 20*time.Second, now, now, 0)
	defer held.expiry.Stop()
	g.Expect(held.remaining()).To(BeNumerically("<=", 20*time.Second))
	held.adapt(timing(50 * time.Second))
	g.Expect(held.remaining()).To(BeNumerically("<=", 20*time.Second), "adapting earns nothing")
	held.renewed(2, 30*time.Second, now)
	g.Expect(held.remaining()).To(BeNumerically("~", 30*time.Second, time.Second))
	held.adapt(timing(25 * time.Second))
	g.Expect(held.remaining()).To(BeNumerically("<=", 25*time.Second))
}

func TestLeaderWithoutALeaseAfterASuspensionIsUnhealthy(t *testing.T) {
	g := NewWithT(t)
	e, held := leadingFor(t, 0, 0, 0)
	g.Expect(e.stuck()).To(BeEmpty())
	held.lease.Store(written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second))
	g.Expect(e.stuck()).To(MatchRegexp(`^the lease of term 5 ran out 3\.?\d*s ago, and it still has not stood down$`))
	held.end(ReasonResigned)
	g.Expect(e.stuck()).To(BeEmpty(), "the candidate has stood down")
}

func TestScrapeAfterASuspensionShowsNoLeader(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	held := newActiveTerm(t.Context(), &config{}, &dispatcher{callbacks: &callbacks{}}, Term{Number: 5}, &settings.Timing{TTL: time.Hour, Interval: 45 * time.Minute}, 0, now, now, 0)
	defer held.end(ReasonStopped)
	defer held.expiry.Stop()
	registry := prometheus.NewPedanticRegistry()
	e := &Election{config: config{name: "a", key: "scheduler", opts: &options{}, bucket: kv.With(unopened{}, nil)}}
	e.now.Store(&snapshot{})
	WithRegisterer(registry)(e.opts)
	e.metrics = newMetrics(e)
	g.Expect(e.metrics.register()).To(Succeed())
	e.now.Store(&snapshot{running: true, term: held})
	says := func(leader string) {
		g.Expect(e.IsLeader()).To(Equal(leader == "1"))
		g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP election_leader Whether this candidate leads, 1 or 0.
# TYPE election_leader gauge
election_leader{bucket="ELECTIONS",election="scheduler",identity="a"} `+leader+"\n"), "election_leader")).To(Succeed())
	}
	held.lease.Store(written(LeaderState, time.Hour, 0, 0, 0))
	says("1")
	held.lease.Store(written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second)) // though no timer has fired
	says("0")
}
