package lease

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// at returns a reading of clocks that have advanced so far from arbitrary origins.
func at(mono, wall, boot time.Duration) Reading {
	return Reading{Instant: Instant{Mono: 7*time.Hour + mono, Wall: 56*8760*time.Hour + wall}, Boot: 9*time.Hour + boot, Readable: true}
}

// third returns a clock that returns the third clock of a reading, and counts how often it is read.
func third(r Reading, asked *int) Clock {
	return func() (time.Duration, bool) {
		*asked++
		return r.Boot, r.Readable
	}
}

func unreadable(r Reading) Reading {
	r.Boot, r.Readable = 0, false
	return r
}

const s = time.Second

func TestTheStricterOfTwoClocksDecidesUnlessTheyDisagree(t *testing.T) {
	for _, c := range []struct {
		name             string
		mono, wall, boot time.Duration // since the lease of 60 s was written
		left             time.Duration
		alone            time.Duration // what is left where no third clock can be read
		asks             bool
	}{
		{"nothing happened", 10 * s, 10 * s, 10 * s, 50 * s, 50 * s, false},
		{"the lease is over", 61 * s, 61 * s, 61 * s, -s, -s, false},
		{"the wall clock is a little ahead", 10 * s, 10*s + tolerance, 99 * s, 50*s - tolerance, 50*s - tolerance, false},
		{"the wall clock is a little behind", 10 * s, 10*s - tolerance, 99 * s, 50 * s, 50 * s, false},
		{"stepped forward", 10 * s, 3610 * s, 10 * s, 50 * s, -3550 * s, true},
		{"stepped forward by less than is left", 10 * s, 30 * s, 10 * s, 50 * s, 30 * s, true},
		{"stepped forward by just more than the tolerance", 10 * s, 10*s + tolerance + 1, 10 * s, 50 * s, 50*s - tolerance - 1, true},
		{"stepped back", 10 * s, -3590 * s, 10 * s, 50 * s, 50 * s, true},
		{"stepped back by just more than the tolerance", 10 * s, 10*s - tolerance - 1, 10 * s, 50 * s, 50 * s, true},
		{"stepped back, and the lease is over", 60 * s, -3540 * s, 60 * s, 0, 0, true},
		{"suspended for less than is left", 10 * s, 30 * s, 30 * s, 30 * s, 30 * s, true},
		{"suspended for more than is left", 10 * s, 70 * s, 70 * s, -10 * s, -10 * s, true},
		{"suspended, and stepped back by less", 10 * s, 40 * s, 70 * s, -10 * s, 20 * s, true},
		{"suspended, and stepped back by more", 10 * s, 9 * s, 70 * s, -10 * s, 50 * s, true},
		{"suspended, and stepped forward", 10 * s, 3600 * s, 30 * s, 30 * s, -3540 * s, true},
		{"the third clock advances in large steps", 10 * s, 3610 * s, 10*s - 16*time.Millisecond, 50 * s, -3550 * s, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			sent, now, asked := at(0, 0, 0), at(c.mono, c.wall, c.boot), 0
			l := New(sent.Instant, 60*s, sent, sent)
			g.Expect(l.Left(now.Instant, third(now, &asked))).To(Equal(c.left))
			g.Expect(asked > 0).To(Equal(c.asks))
			g.Expect(l.Agreed(now.Instant)).To(Equal(!c.asks))

			g.Expect(l.Left(now.Instant, third(unreadable(now), &asked))).To(Equal(c.alone), "if the clock cannot be read any more")
			asked = 0
			l = New(sent.Instant, 60*s, unreadable(sent), unreadable(sent))
			g.Expect(l.Left(now.Instant, third(now, &asked))).To(Equal(c.alone), "if the clock could not be read before")
			g.Expect(asked).To(BeZero())
		})
	}
}

// TestSuspensionsAndStepsDuringAWriteCount reads the clocks 100 s before the write is sent, and when it is acknowledged. Nothing
// happens after that.
func TestSuspensionsAndStepsDuringAWriteCount(t *testing.T) {
	for _, c := range []struct {
		name             string
		mono, wall, boot time.Duration // from the sending to the acknowledgement
		left             time.Duration
	}{
		{"nothing", 10 * s, 10 * s, 10 * s, 50 * s},
		{"the wall clock advances less", 10 * s, 10*s - tolerance, 10 * s, 50 * s},
		{"the wall clock advances more", 10 * s, 10*s + tolerance, 10 * s, 50*s - tolerance},
		{"a step forward", 10 * s, 3610 * s, 10 * s, 50 * s},
		{"a step back", 10 * s, -3590 * s, 10 * s, 50 * s},
		{"a suspension", 10 * s, 40 * s, 40 * s, 20 * s},
		{"a long suspension", 10 * s, 80 * s, 80 * s, -20 * s},
		{"a suspension and a step back", 10 * s, 20 * s, 80 * s, -20 * s},
		{"a suspension and a step further back", 10 * s, -20 * s, 80 * s, -20 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			before, sent, now, asked := at(-100*s, -100*s, -100*s), at(0, 0, 0), at(c.mono, c.wall, c.boot), 0
			l := New(sent.Instant, 60*s, before, now)
			g.Expect(l.Left(now.Instant, third(now, &asked))).To(Equal(c.left))
			later := at(c.mono+s, c.wall+s, c.boot+s)
			g.Expect(l.Left(later.Instant, third(later, &asked))).To(Equal(c.left - s))
			stepped := at(c.mono+s, c.wall+1000*s, c.boot+s)
			g.Expect(l.Left(stepped.Instant, third(stepped, &asked))).To(Equal(c.left - s))
			suspended := at(c.mono, c.wall-1000*s, c.boot+s)
			g.Expect(l.Left(suspended.Instant, third(suspended, &asked))).To(Equal(c.left - s))

			l = New(sent.Instant, 60*s, unreadable(before), now)
			g.Expect(l.Left(now.Instant, third(now, &asked))).To(BeNumerically("<=", min(60*s-c.mono, 60*s-c.wall)), "the stricter clock decides")
		})
	}
}

// TestSuspensionBeforeARenewalCountsOnlyInDoubt suspends the machine for 20 s before a renewal is sent. The lease can tell that
// it was before, unless the wall clock is stepped while the renewal is under way.
func TestSuspensionBeforeARenewalCountsOnlyInDoubt(t *testing.T) {
	g := NewWithT(t)
	won, asked := at(0, 0, 0), 0
	l := New(won.Instant, 60*s, won, won)
	sent := at(10*s, 30*s, 30*s)
	sound := l.Renew(sent.Instant, 60*s, at(11*s, 31*s, 31*s))
	doubtful := l.Renew(sent.Instant, 60*s, at(11*s, 3631*s, 31*s))
	now := at(11*s, 9931*s, 31*s)
	g.Expect(sound.Left(now.Instant, third(now, &asked))).To(Equal(59 * s))
	g.Expect(doubtful.Left(now.Instant, third(now, &asked))).To(Equal(39 * s))
	next := doubtful.Renew(now.Instant, 60*s, now)
	g.Expect(next.Left(now.Instant, third(now, &asked))).To(Equal(60*s), "the next renewal ends the doubt")
}

func TestRenewalAfterAStepNeedsTheThirdClockNoLonger(t *testing.T) {
	g := NewWithT(t)
	won, asked := at(0, 0, 0), 0
	l := New(won.Instant, 60*s, won, won)
	now := at(10*s, 9999*s, 10*s)
	g.Expect(l.Left(now.Instant, third(now, &asked))).To(Equal(50 * s))
	g.Expect(asked).To(Equal(1))
	renewed := l.Renew(now.Instant, 60*s, now)
	g.Expect(renewed.Left(now.Instant, third(now, &asked))).To(Equal(60 * s))
	g.Expect(asked).To(Equal(1))
	g.Expect(l.Left(now.Instant, third(now, &asked))).To(Equal(50*s), "the old lease has not changed")
}

func TestEndedLeaseStaysOver(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	l := Ended(at(0, 0, 0).Instant)
	for _, now := range []Reading{at(0, 0, 0), at(s, s, s), at(s, 9999*s, s), at(s, -9999*s, s), at(0, -9999*s, s)} {
		g.Expect(l.Left(now.Instant, third(now, &asked))).To(BeNumerically("<=", 0))
	}
	g.Expect(asked).To(BeZero())
	g.Expect(new(Lease).Left(Of(time.Now()), SinceBoot)).To(BeNumerically("<", 0), "the zero Lease has ended, too")
}

func TestThirdClockIsNeverReadOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		began, asked := Read(), 0
		ask := third(began, &asked)
		time.Sleep(time.Hour)
		sent := time.Now()
		time.Sleep(s)
		l := New(Of(sent), time.Hour, began, Read())
		for range 100 {
			g.Expect(l.Left(Of(time.Now()), ask)).To(Equal(time.Until(sent.Add(time.Hour))))
			time.Sleep(time.Minute)
		}
		g.Expect(asked).To(BeZero())
	})
}

func TestClocksOfThisMachineAgree(t *testing.T) {
	g := NewWithT(t)
	first := Read()
	time.Sleep(10 * time.Millisecond)
	second := Read()
	g.Expect(second.Mono - first.Mono).To(BeNumerically(">=", 10*time.Millisecond))
	if !first.Readable {
		t.Skip("no clock here counts suspension")
	}
	g.Expect(second.Boot - first.Boot).To(BeNumerically("~", second.Mono-first.Mono, tolerance))
}

func TestReadingTheThirdClockAllocatesNothing(t *testing.T) {
	now := Of(time.Now())
	l := New(now, time.Hour, Read(), Read())
	now.Wall += 2 * time.Hour
	NewWithT(t).Expect(testing.AllocsPerRun(100, func() { l.Left(now, SinceBoot) })).To(BeZero())
}
