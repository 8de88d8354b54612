package election

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	clocks "github.com/natscampaign/election/internal/lease"
)

// written returns a lease on which by now so much time has passed as each of the clocks says.
func written(state State, length, mono, wall, boot time.Duration) *lease {
	r, now := clocks.Read(), time.Now()
	r.Mono, r.Wall, r.Boot = r.Mono-mono, r.Wall-wall, r.Boot-boot
	return &lease{Lease: clocks.New(r.Instant, length, r, r), state: state, deadline: moveWall(now.Add(length-mono), mono-wall)}
}

// leadingFor returns an election that has led an hour's lease for as long as each of the clocks says.
func leadingFor(t *testing.T, mono, wall, boot time.Duration) (*Election, *tenure) {
	t.Helper()
	now := time.Now()
	held := newTenure(t.Context(), &announcer{}, Term{Number: 5}, timing{ttl: time.Hour, interval: 45 * time.Minute}, now, now, 0)
	held.lease.Store(written(LeaderState, time.Hour, mono, wall, boot))
	t.Cleanup(func() {
		held.end(reasonDeleted)
		held.expiry.Stop()
	})
	e := &Election{}
	e.running.Store(true)
	e.tenure.Store(held)
	return e, held
}

// LetPass has a term's lease of an hour look as if so much time had passed on it as each of the clocks says.
func LetPass(term Term, mono, wall, boot time.Duration) {
	term.tenure.lease.Store(written(LeaderState, time.Hour, mono, wall, boot))
}

// needsThirdClock skips a test where the system has no clock that counts suspension.
func needsThirdClock(t *testing.T) {
	t.Helper()
	if _, ok := clocks.SinceBoot(); !ok {
		t.Skip("no clock here counts suspension")
	}
}

func TestStepOfTheWallClockEndsNoLeadership(t *testing.T) {
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
			g.Expect(term.Deadline().Round(0)).To(BeTemporally("~", time.Now().Round(0).Add(50*time.Minute), 5*time.Second), "by the wall clock as it is now")
			g.Expect(held.remaining()).To(BeNumerically("~", 50*time.Minute, 5*time.Second))
			g.Expect(held.overdue()).To(BeNumerically("<", 0))
			g.Expect(e.stuck()).To(BeEmpty())
			g.Expect(held.end(reasonDeadline)).To(BeFalse())

			g.Expect(held.lease.Load().Agreed(clocks.Of(time.Now()))).To(BeFalse())
			g.Expect(held.renewed(6, time.Now())).To(BeTrue())
			g.Expect(held.lease.Load().Agreed(clocks.Of(time.Now()))).To(BeTrue(), "the third clock is asked no more")
			g.Expect(e.IsLeader()).To(BeTrue())
		})
	}
}

func TestSuspensionEndsLeadershipWhateverTheWallClockIsSetTo(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -59 * time.Minute, -61 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			g := NewWithT(t)
			e, held := leadingFor(t, 10*time.Minute, 70*time.Minute+step, 70*time.Minute)
			g.Expect(e.IsLeader()).To(BeFalse())
			_, ok := e.Term()
			g.Expect(ok).To(BeFalse())
			term := Term{tenure: held}
			g.Expect(term.Valid()).To(BeFalse())
			g.Expect(e.State()).To(Equal(CandidateState))
			g.Expect(time.Until(term.Deadline())).To(BeNumerically("~", -10*time.Minute, 5*time.Second))
			g.Expect(held.remaining()).To(BeZero())
			g.Expect(held.overdue()).To(BeNumerically("~", 10*time.Minute, 5*time.Second))
			g.Expect(held.renewed(6, time.Now())).To(BeFalse())
			g.Expect(held.end(reasonDeadline)).To(BeTrue())
			g.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()))
		})
	}
}

func TestStepOfTheWallClockWhileAWriteIsUnderWayEndsNoLeadership(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{2 * time.Hour, time.Second, -time.Second, -2 * time.Hour} {
		g := NewWithT(t)
		now := time.Now()
		tm := timing{ttl: time.Hour, interval: 45 * time.Minute}
		held := newTenure(t.Context(), &announcer{}, Term{}, tm, moveWall(now, -step), now, 0)
		defer held.end(reasonDeleted)
		g.Expect(held.remaining()).To(BeNumerically("~", time.Hour, 5*time.Second))
		g.Expect(held.renewed(2, moveWall(time.Now(), -step))).To(BeTrue())
		g.Expect(held.leads()).To(BeTrue())
		g.Expect(time.Until(Term{tenure: held}.Deadline())).To(BeNumerically("~", time.Hour, 5*time.Second))
	}
}

// TestSuspensionWhileARenewalIsUnderWayCountsWhateverTheWallClockIsSetTo has the machine be suspended for 50 minutes in the
// last five, and the renewal be sent one minute ago.
func TestSuspensionWhileARenewalIsUnderWayCountsWhateverTheWallClockIsSetTo(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -30 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		g := NewWithT(t)
		_, held := leadingFor(t, 5*time.Minute, 55*time.Minute, 55*time.Minute)
		sent := moveWall(time.Now().Add(-time.Minute), -50*time.Minute-step)
		g.Expect(held.renewed(2, sent)).To(BeTrue())
		g.Expect(held.remaining()).To(BeNumerically("~", 9*time.Minute, 5*time.Second), "%v", step)
	}
}

func TestAcknowledgementThatMeetsASuspendedMachineAfterTheDeadlineCountsForNothing(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	tm := timing{ttl: time.Minute, interval: 45 * time.Second}
	held := newTenure(t.Context(), &announcer{}, Term{}, tm, now, now, 0)
	held.lease.Store(written(LeaderState, time.Minute, 0, 2*time.Minute, 2*time.Minute))
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.renewed(2, now)).To(BeFalse())
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.end(reasonDeadline)).To(BeTrue())
	g.Expect(held.renewed(3, time.Now())).To(BeFalse())
	g.Expect(held.expiry.Stop()).To(BeFalse(), "no timer is left behind")
}

func TestLeaderThatWakesFromASuspensionWithoutALeaseIsUnhealthy(t *testing.T) {
	g := NewWithT(t)
	e, held := leadingFor(t, 0, 0, 0)
	g.Expect(e.stuck()).To(BeEmpty())
	held.lease.Store(written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second))
	g.Expect(e.stuck()).To(MatchRegexp(`^the lease of term 5 ran out 3\.?\d*s ago, and it still has not stood down$`))
	held.end(reasonResigned)
	g.Expect(e.stuck()).To(BeEmpty(), "it knows")
}

func TestScrapeOfALeaderThatWakesFromASuspensionWithoutALeaseSaysThatItDoesNotLead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	held := newTenure(t.Context(), &announcer{}, Term{Number: 5}, timing{ttl: time.Hour, interval: 45 * time.Minute}, now, now, 0)
	defer held.end(reasonStopped)
	defer held.expiry.Stop()
	registry := prometheus.NewPedanticRegistry()
	e := &Election{name: "a", key: "scheduler"}
	WithRegisterer(registry)(&e.opts)
	e.metrics = newMetrics(e)
	g.Expect(e.metrics.register()).To(Succeed())
	e.running.Store(true)
	e.tenure.Store(held)
	says := func(leader string) {
		g.Expect(e.IsLeader()).To(Equal(leader == "1"))
		g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP election_leader Whether this candidate leads, 1 or 0.
# TYPE election_leader gauge
election_leader{election="scheduler",identity="a"} `+leader+"\n"), "election_leader")).To(Succeed())
	}
	held.lease.Store(written(LeaderState, time.Hour, 0, 0, 0))
	says("1")
	held.lease.Store(written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second)) // and no timer has fired
	says("0")
}

// moveWall moves the wall clock reading of a time and leaves the monotonic one. The first word of the time holds the wall
// clock's seconds above 30 bits of nanoseconds, and in its highest bit that there is a monotonic reading.
func moveWall(t time.Time, by time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&t))
	wall := time.Duration(*word<<1>>31)*time.Second + time.Duration(*word&(1<<30-1)) + by
	*word = 1<<63 | uint64(wall/time.Second)<<30 | uint64(wall%time.Second)
	return t
}

func TestGoroutinesAreToldApart(t *testing.T) {
	g := NewWithT(t)
	g.Expect(goroutine()).NotTo(BeZero())
	g.Expect(goroutine()).To(Equal(goroutine()))
	other := make(chan uint64)
	go func() { other <- goroutine() }()
	g.Expect(<-other).NotTo(Equal(goroutine()))
}
