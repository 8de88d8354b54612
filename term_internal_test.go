package election

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timing"
)

// written returns a lease that is as old as each of the clocks says.
func written(state State, length, mono, wall, boot time.Duration) *core.Lease {
	r, now := lease.Read(), time.Now()
	r.Mono, r.Wall, r.Boot = r.Mono-mono, r.Wall-wall, r.Boot-boot
	return &core.Lease{
		Timing: &timing.Timing{TTL: time.Hour, Interval: 45 * time.Minute}, Lease: lease.New(r.Instant, length, r, r), State: core.State(state),
		Deadline: moveWall(now.Add(length-mono), mono-wall),
	}
}

// leadingFor returns an election with a lease of an hour that is as old as each of the clocks says.
func leadingFor(t *testing.T, mono, wall, boot time.Duration) (*Election, *activeTerm) {
	t.Helper()
	e, err := NewElection("a", "scheduler", unopened{})
	if err != nil {
		t.Fatal(err)
	}
	e.running = true
	r, err := e.enter(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	driver{r}.NewTerm(&core.Term{Number: 5})
	held := r.latest
	age(held, written(LeaderState, time.Hour, mono, wall, boot))
	e.term.Store(held)
	return e, held
}

// age replaces the lease of a term.
func age(held *activeTerm, l *core.Lease) {
	r := held.Driver.(termDriver).run
	r.mu.Lock()
	defer r.mu.Unlock()
	held.Core.Lease = l
	held.SetLease(l)
}

// AgeLease replaces the lease of a term by a lease of an hour that is as old as each of the clocks says.
func AgeLease(term Term, mono, wall, boot time.Duration) {
	age(term.active, written(LeaderState, time.Hour, mono, wall, boot))
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
			g.Expect(left(held)).To(BeNumerically("~", 50*time.Minute, 5*time.Second))
			g.Expect(stuck(e)).To(BeEmpty())
			g.Expect(e.current.end(held, core.Deadline)).To(BeFalse())
			g.Expect(held.leads()).To(BeTrue())
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
			g.Expect(left(held)).To(BeNumerically("~", -10*time.Minute, 5*time.Second))
			g.Expect(e.current.end(held, core.Deadline)).To(BeTrue())
			g.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()))
		})
	}
}

// stuck says why a candidate makes no progress any more; "" while all is well.
func stuck(e *Election) string {
	v := e.view()
	return v.stuck(time.Now())
}

// left returns what is left of the lease of a term.
func left(held *activeTerm) time.Duration {
	return held.Lease().Left(time.Now(), lease.SinceBoot)
}

func TestStatusDoesNotContradictItselfWhileTheStateChanges(t *testing.T) {
	natstest.SkipIfShort(t)
	e, leader := leadingFor(t, 0, 0, 0)
	_, elect := leadingFor(t, 0, 0, 0)
	age(elect, written(LeaderElectState, time.Hour, 0, 0, 0))
	done, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, held := range []*activeTerm{leader, elect, nil} {
				e.term.Store(held)
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

func TestLeaderWithoutALeaseAfterASuspensionIsUnhealthy(t *testing.T) {
	g := NewWithT(t)
	e, held := leadingFor(t, 0, 0, 0)
	g.Expect(stuck(e)).To(BeEmpty())
	age(held, written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second))
	g.Expect(stuck(e)).To(MatchRegexp(`^the lease of term 5 ran out 3\.?\d*s ago, and it still has not stood down$`))
	e.current.end(held, core.Resigned)
	g.Expect(stuck(e)).To(BeEmpty(), "the candidate has stood down")
}

func TestScrapeAfterASuspensionShowsNoLeader(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewPedanticRegistry()
	e, held := leadingFor(t, 0, 0, 0)
	WithRegisterer(registry)(e.opts)
	e.metrics = newMetrics(&e.config, e.moment)
	g.Expect(e.metrics.register()).To(Succeed())
	says := func(leader string) {
		g.Expect(e.IsLeader()).To(Equal(leader == "1"))
		g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP election_leader Whether this candidate leads, 1 or 0.
# TYPE election_leader gauge
election_leader{bucket="ELECTIONS",election="scheduler",identity="a"} `+leader+"\n"), "election_leader")).To(Succeed())
	}
	says("1")
	age(held, written(LeaderState, time.Hour, 0, 3603*time.Second, 3603*time.Second)) // though no timer has fired
	says("0")
}
