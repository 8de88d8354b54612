package election_test

import (
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	const shortest = 10 * time.Millisecond
	for name, c := range map[string]struct {
		backoff election.Backoff
		longest func(n int) time.Duration
	}{
		"constant":             {election.ConstantBackoff(time.Second), func(int) time.Duration { return time.Second }},
		"constant zero":        {election.ConstantBackoff(0), func(int) time.Duration { return shortest }},
		"constant negative":    {election.ConstantBackoff(math.MinInt64), func(int) time.Duration { return shortest }},
		"exponential":          {election.ExponentialBackoff(time.Second, time.Minute), func(n int) time.Duration { return min(time.Second<<min(max(n-1, 0), 10), time.Minute) }},
		"exponential zero":     {election.ExponentialBackoff(0, 0), func(int) time.Duration { return shortest }},
		"exponential no max":   {election.ExponentialBackoff(time.Second, 0), func(int) time.Duration { return time.Second }},
		"exponential huge":     {election.ExponentialBackoff(time.Second, math.MaxInt64), func(int) time.Duration { return math.MaxInt64 }},
		"exponential negative": {election.ExponentialBackoff(math.MinInt64, math.MinInt64), func(int) time.Duration { return shortest }},
		"5 s":                  {election.RampBackoff(5 * time.Second), func(n int) time.Duration { return ramp(n, 5*time.Second) }},
		"20 s":                 {election.RampBackoff(20 * time.Second), func(n int) time.Duration { return ramp(n, 20*time.Second) }},
		"1 min":                {election.RampBackoff(time.Minute), func(n int) time.Duration { return ramp(n, time.Minute) }},
		"ramp endless":         {election.RampBackoff(math.MaxInt64), func(int) time.Duration { return math.MaxInt64 }},
		"ramp zero":            {election.RampBackoff(0), func(int) time.Duration { return 30 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, n := range []int{math.MinInt, -1, 0, 1, 2, 3, 10, 40, 63, 64, 65, 1000, math.MaxInt} {
				for range 100 {
					d := c.backoff.Duration(n)
					g.Expect(d).To(BeNumerically(">=", shortest), "n = %d", n)
					g.Expect(d).To(BeNumerically("<=", c.longest(n)), "n = %d", n)
				}
			}
		})
	}
}

// ramp returns the longest wait of a RampBackoff: n half seconds, but no more than its top, and a half of that more.
func ramp(n int, top time.Duration) time.Duration {
	return min(time.Duration(min(max(n, 1), 1000))*500*time.Millisecond, top) * 3 / 2
}

func TestExponentialBackoffSpreadsOverItsWholeRange(t *testing.T) {
	g := NewWithT(t)
	low, high := 0, 0
	for range 1000 {
		d := election.ExponentialBackoff(time.Second, 8*time.Second).Duration(4)
		if d < 2*time.Second {
			low++
		}
		if d > 6*time.Second {
			high++
		}
	}
	g.Expect(low).To(BeNumerically("~", 250, 100))
	g.Expect(high).To(BeNumerically("~", 250, 100))
}

func TestBackoffReceivesTheLostCampaignsAndIsClamped(t *testing.T) {
	natstest.SkipIfShort(t)
	for wait, want := range map[time.Duration]time.Duration{
		-time.Hour: 10 * time.Millisecond, 0: 10 * time.Millisecond, time.Second: time.Second, time.Hour: TTL, math.MaxInt64: TTL,
	} {
		t.Run(wait.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Leading("a")
				var asked []int
				b := f.Unnotified("b", election.WithBackoff(BackoffFunc(func(n int) time.Duration {
					asked = append(asked, n)
					return wait
				}))).Begin()
				After(5*want + want/2)
				f.Expect(b.IsLeader()).To(BeFalse())
				f.Expect(asked).To(Equal([]int{1, 2, 3, 4, 5, 6}))
			})
		})
	}
}

func TestBackoffCountsOnAfterALostTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		var asked []int
		f.Unnotified("a", election.WithBackoff(BackoffFunc(func(n int) time.Duration {
			asked = append(asked, n)
			return time.Second
		}))).Begin()
		After(Interval)
		f.Write("stranger")
		After(Interval + 3*time.Second + time.Second/2)
		f.Expect(asked).To(Equal([]int{1, 2, 3}), "then the record of the stranger has expired")
	})
}

func TestPanickingBackoffCostsNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Write("stranger")
		b := f.Candidate("b", election.WithBackoff(BackoffFunc(func(int) time.Duration { panic("oops") }))).Begin()
		After(5 * TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
