package election

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestLeaseEndsByWhicheverClockIsFurtherAhead stands in for a suspended machine, whose monotonic clock stood still while
// the wall clock went on, and for a wall clock that is set back.
func TestLeaseEndsByWhicheverClockIsFurtherAhead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	l := lease{}.until(now.Add(10 * time.Second))
	g.Expect(l.holds(now)).To(BeTrue())
	g.Expect(l.holds(now.Add(10 * time.Second))).To(BeFalse())

	suspended := moveWall(now, 10)
	g.Expect(suspended.Sub(now)).To(BeZero(), "by the monotonic clock")
	g.Expect(suspended.UnixNano()-now.UnixNano()).To(BeEquivalentTo(10*time.Second), "by the wall clock")
	g.Expect(l.holds(suspended)).To(BeFalse())
	g.Expect(l.holds(moveWall(now, 9))).To(BeTrue())

	setBack := moveWall(now.Add(10*time.Second), -3600)
	g.Expect(l.holds(setBack)).To(BeFalse())
}

func TestAcknowledgementThatMeetsASuspendedMachineAfterTheDeadlineCountsForNothing(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	tm := timing{ttl: time.Minute, interval: 45 * time.Second}
	held := newTenure(t.Context(), &announcer{}, Term{}, tm, now, now, 0)
	held.lease.Store(lease{state: LeaderState}.until(moveWall(now.Add(time.Minute), -120))) // by the wall clock it is over
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.renewed(2, now)).To(BeFalse())
	g.Expect(held.leads()).To(BeFalse())
	g.Expect(held.end(reasonDeadline)).To(BeTrue())
	g.Expect(held.renewed(3, time.Now())).To(BeFalse())
	g.Expect(held.expiry.Stop()).To(BeFalse(), "no timer is left behind")
}

func TestLeaderThatWakesFromASuspensionWithoutALeaseIsUnhealthy(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	held := newTenure(t.Context(), &announcer{}, Term{Number: 5}, timing{ttl: time.Hour, interval: 45 * time.Minute}, now, now, 0)
	defer held.end(reasonStopped)
	defer held.expiry.Stop()
	e := &Election{}
	e.running.Store(true)
	e.tenure.Store(held)
	g.Expect(e.stuck()).To(BeEmpty())
	held.lease.Store(lease{state: LeaderState}.until(moveWall(now.Add(time.Hour), -3603))) // it is over by the wall clock
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
	held.lease.Store(lease{state: LeaderState}.until(now.Add(time.Hour)))
	says("1")
	held.lease.Store(lease{state: LeaderState}.until(moveWall(now.Add(time.Hour), -3603))) // and no timer has fired
	says("0")
}

// moveWall moves the wall clock reading of a time, whose first word holds it above 30 bits of nanoseconds, and leaves the
// monotonic one.
func moveWall(t time.Time, seconds int) time.Time {
	word := (*uint64)(unsafe.Pointer(&t))
	*word += uint64(seconds) << 30
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
