package core

import (
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

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

// leading returns a candidate with a term that it has won by a write that was sent at the given time and stated a lease, 0 for none.
func leading(ttl, stated time.Duration, sent time.Time) (*Candidate, *Term) {
	c := candidate()
	c.bucket.Timing = timing.Timing{TTL: ttl, Interval: ttl * 3 / 4}
	return c, c.newTerm(time.Now(), &acquisition{
		reason: Vacant, sent: sent, acknowledged: time.Now(), revision: 5, written: &record.Record{LeaseMs: stated.Milliseconds()},
	})
}

// extends reports whether a write extends the lease of a term.
func extends(c *Candidate, now time.Time, t *Term, revision uint64, stated time.Duration, sent time.Time) bool {
	extended, _ := c.extend(now, t, revision, stated, sent)
	return extended
}

// aged replaces the lease of a term by one that is as old as each of the clocks says.
func aged(t *Term, length, mono, wall, boot time.Duration) {
	r, now := lease.Read(), time.Now()
	r.Mono, r.Wall, r.Boot = r.Mono-mono, r.Wall-wall, r.Boot-boot
	t.Lease = &Lease{Timing: t.Lease.Timing, Lease: lease.New(r.Instant, length, r, r), State: Leader, Deadline: moveWall(now.Add(length-mono), mono-wall)}
}

func TestRenewalNeedsNoThirdClockAfterAStep(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{2 * time.Hour, time.Second, -time.Second, -24 * time.Hour} {
		g := NewWithT(t)
		c, held := leading(time.Hour, 0, time.Now())
		aged(held, time.Hour, 10*time.Minute, 10*time.Minute+step, 10*time.Minute)
		g.Expect(c.left(time.Now(), held)).To(BeNumerically("~", 50*time.Minute, 5*time.Second))
		g.Expect(held.Lease.Agreed(lease.Of(time.Now()))).To(BeFalse())
		g.Expect(c.endLeadership(time.Now(), held, Deadline)).To(BeFalse())
		g.Expect(extends(c, time.Now(), held, 6, 0, time.Now())).To(BeTrue())
		g.Expect(held.Lease.Agreed(lease.Of(time.Now()))).To(BeTrue(), "the third clock is not needed any more")
		g.Expect(held.Lease.State).To(Equal(Leader))
	}
}

func TestRenewalAfterASuspensionExtendsNoLease(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -59 * time.Minute, -61 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		g := NewWithT(t)
		c, held := leading(time.Hour, 0, time.Now())
		aged(held, time.Hour, 10*time.Minute, 70*time.Minute+step, 70*time.Minute)
		g.Expect(extends(c, time.Now(), held, 6, 0, time.Now())).To(BeFalse())
		g.Expect(c.endLeadership(time.Now(), held, Deadline)).To(BeTrue())
		g.Expect(extends(c, time.Now(), held, 7, 0, time.Now())).To(BeFalse())
		g.Expect(held.Reason).To(Equal(Deadline))
	}
}

func TestWallClockStepDuringAWriteEndsNoLeadership(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{2 * time.Hour, time.Second, -time.Second, -2 * time.Hour} {
		g := NewWithT(t)
		c, held := leading(time.Hour, 0, moveWall(time.Now(), -step))
		g.Expect(c.left(time.Now(), held)).To(BeNumerically("~", time.Hour, 5*time.Second))
		g.Expect(extends(c, time.Now(), held, 6, 0, moveWall(time.Now(), -step))).To(BeTrue())
		g.Expect(held.Lease.State).To(Equal(Leader))
		g.Expect(time.Until(held.Lease.Ends(time.Now(), c.Boot))).To(BeNumerically("~", time.Hour, 5*time.Second))
	}
}

// In this test the machine was suspended for 50 minutes during the last five, and the renewal was sent one minute ago.
func TestSuspensionDuringARenewalShortensTheLease(t *testing.T) {
	needsThirdClock(t)
	for _, step := range []time.Duration{0, -30 * time.Minute, -24 * time.Hour, 24 * time.Hour} {
		g := NewWithT(t)
		c, held := leading(time.Hour, 0, time.Now())
		aged(held, time.Hour, 5*time.Minute, 55*time.Minute, 55*time.Minute)
		g.Expect(extends(c, time.Now(), held, 6, 0, moveWall(time.Now().Add(-time.Minute), -50*time.Minute-step))).To(BeTrue())
		g.Expect(c.left(time.Now(), held)).To(BeNumerically("~", 9*time.Minute, 5*time.Second), "%v", step)
	}
}

// Others go by the lease that the record states: the TTL may have become longer since it was written.
func TestLeaseIsNoLongerThanTheRecordStates(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	c, held := leading(time.Minute, 20*time.Second, sent)
	adapt := func(ttl time.Duration) {
		c.bucket.Timing = timing.Timing{TTL: ttl, Interval: ttl / 2}
		c.adapt(time.Now(), held)
	}
	left := func() time.Duration { return c.left(time.Now(), held) }
	g.Expect(left()).To(BeNumerically("<=", 20*time.Second))
	adapt(50 * time.Second)
	g.Expect(left()).To(BeNumerically("<=", 20*time.Second), "adapting earns nothing")
	c.extend(time.Now(), held, 6, 30*time.Second, sent)
	g.Expect(left()).To(BeNumerically("~", 30*time.Second, time.Second))
	adapt(25 * time.Second)
	g.Expect(left()).To(BeNumerically("<=", 25*time.Second))
}

// The TTL may become longer between the write that wins and its answer: the interval is that of the new one.
func TestRenewalIsDueWithinALeaseThatIsShorterThanTheTTLAllows(t *testing.T) {
	for _, standDown := range []time.Duration{0, 14 * time.Second, 16 * time.Second, 19900 * time.Millisecond, time.Minute} {
		g := NewWithT(t)
		sent := time.Now()
		c := candidate()
		c.bucket.Timing = timing.Timing{TTL: time.Minute, Interval: 45 * time.Second, StandDown: standDown}
		held := c.newTerm(sent, &acquisition{reason: Vacant, sent: sent, acknowledged: sent, revision: 5, written: &record.Record{LeaseMs: 20000}})
		g.Expect(held.renewAt).To(BeTemporally("<=", sent.Add(20*time.Second-timing.MinTry)), "stand-down %v", standDown)
	}
}

func TestNoReasonButAnInvoluntaryOneIsALossAfterTheEnd(t *testing.T) {
	g := NewWithT(t)
	c, held := leading(time.Minute, 0, time.Now())
	g.Expect(c.endLeadership(time.Now(), held, Resigned)).To(BeTrue())
	g.Expect(c.lasts(time.Now(), held)).To(BeTrue(), "the key is held while work returns")
	g.Expect(c.endLeadership(time.Now(), held, Stopped)).To(BeFalse())
	g.Expect(held.LostBy).To(BeEmpty())
	g.Expect(c.endLeadership(time.Now(), held, Overwritten)).To(BeFalse())
	g.Expect(held.Reason).To(Equal(Resigned))
	g.Expect(held.LostBy).To(Equal(Overwritten))
	g.Expect(c.lasts(time.Now(), held)).To(BeFalse())
}

// Its clock may have been slewed ahead while that of a leader that is cut off was slewed back.
func TestStandDownIsLongerByWhatItsClockWasSlewedAhead(t *testing.T) {
	for name, test := range map[string]struct {
		gained   time.Duration
		readable bool
		later    time.Duration
	}{
		"not slewed":           {0, true, 0},
		"slewed ahead":         {500 * time.Millisecond, true, 500 * time.Millisecond},
		"slewed back":          {-500 * time.Millisecond, true, 0},
		"not to be read again": {0, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c := candidate()
			w := *c.World
			c.World = &w
			term := &Term{Lease: &Lease{State: LeaderElect}, StandDown: 12 * time.Second, wonAt: c.moment(now)}
			term.LeadsFrom = now.Add(term.StandDown)
			w.Slewed = func() (time.Duration, bool) { return test.gained, test.readable }
			for range 2 {
				c.correct(now.Add(term.StandDown), term)
				g.Expect(term.LeadsFrom.Sub(now)).To(Equal(term.StandDown + test.later))
			}
		})
	}
}
