package timing

import (
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/validate"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

func given(d time.Duration) *time.Duration { return &d }

func TestDurationsAreValidated(t *testing.T) {
	for _, c := range []struct {
		set  Durations
		text string // "" if they are valid
	}{
		{Durations{}, ""},
		{Durations{given(MinPause), given(0), given(0), given(0), given(0)}, ""},
		{Durations{StandDown: given(time.Hour)}, ""},
		{Durations{Splay: given(math.MaxInt64), ReleaseTimeout: given(math.MaxInt64)}, ""},
		{Durations{Interval: given(MinPause - 1)}, "WithCampaignInterval(9.999999ms) is too short"},
		{Durations{Interval: given(-1)}, "WithCampaignInterval(-1ns) is negative"},
		{Durations{Splay: given(-s)}, "WithSplay(-1s) is negative"},
		{Durations{StandDown: given(-s)}, "WithStandDown(-1s) is negative"},
		{Durations{StandDown: given(time.Hour + 1)}, "WithStandDown(1h0m0.000000001s) is longer than any lease"},
		{Durations{LeaseMargin: given(-s)}, "WithLeaseMargin(-1s) is negative"},
		{Durations{ReleaseTimeout: given(math.MinInt64)}, "WithReleaseTimeout("},
	} {
		g := NewWithT(t)
		if err := c.set.Validate(); c.text == "" {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(And(MatchError(validate.ErrInvalidOption), MatchError(ContainSubstring(c.text))))
		}
	}
	all := Durations{given(-1), given(-2), given(-3), given(-4), given(-5)}
	NewWithT(t).Expect(all.Validate()).To(MatchError(And(
		ContainSubstring("WithCampaignInterval(-1ns)"), ContainSubstring("WithSplay(-2ns)"), ContainSubstring("WithStandDown(-3ns)"),
		ContainSubstring("WithLeaseMargin(-4ns)"), ContainSubstring("WithReleaseTimeout(-5ns)"))))
}

func TestTimingFollowsTheTTLAndTheOptions(t *testing.T) {
	for name, c := range map[string]struct {
		set  Durations
		ttl  time.Duration
		want Timing
	}{
		"shortest TTL": {Durations{}, s, Timing{s, 750 * ms, 750 * ms, 750 * ms, 100 * ms, s, true, true}},
		"10 s":         {Durations{}, 10 * s, Timing{10 * s, 7500 * ms, 5 * s, 7500 * ms, 1 * s, 10 * s, true, true}},
		"longest TTL":  {Durations{}, time.Hour, Timing{time.Hour, 45 * time.Minute, 5 * s, 45 * time.Minute, 6 * time.Minute, time.Hour, true, true}},
		"an interval sets splay and stand-down": {Durations{Interval: given(2 * s)}, 10 * s,
			Timing{10 * s, 2 * s, 2 * s, 2 * s, 1 * s, 10 * s, true, true}},
		"all are set": {Durations{given(1 * s), given(2 * s), given(0), given(4 * s), given(0)}, 10 * s,
			Timing{10 * s, 1 * s, 2 * s, 0, 4 * s, 0, false, false}},
		"the longest interval":       {Durations{Interval: given(8900 * ms)}, 10 * s, Timing{10 * s, 8900 * ms, 5 * s, 8900 * ms, 1 * s, 10 * s, true, true}},
		"the longest margin":         {Durations{LeaseMargin: given(5*s - 1), Interval: given(s)}, 10 * s, Timing{10 * s, s, s, s, 5*s - 1, 10 * s, true, true}},
		"a stand-down above the TTL": {Durations{StandDown: given(time.Minute)}, 10 * s, Timing{10 * s, 7500 * ms, 5 * s, time.Minute, 1 * s, 10 * s, false, true}},
		"durations without an end, of which a sum must not overflow": {Durations{Splay: given(math.MaxInt64), ReleaseTimeout: given(math.MaxInt64)}, 10 * s,
			Timing{10 * s, 7500 * ms, longest, 7500 * ms, 1 * s, longest, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := c.set.Timing(c.ttl)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(c.want))
		})
	}
}

func TestTimingRefusesWhatDoesNotFitTheTTL(t *testing.T) {
	for name, c := range map[string]struct {
		set  Durations
		text string
	}{
		"no room to try again":       {Durations{Interval: given(8900*ms + 1)}, "use 10ms to 8.9s, or leave WithCampaignInterval out"},
		"longer than the TTL":        {Durations{Interval: given(math.MaxInt64)}, "leaves no room"},
		"a margin of half the TTL":   {Durations{LeaseMargin: given(5 * s)}, "half of the bucket's TTL of 10s"},
		"a margin without an end":    {Durations{LeaseMargin: given(math.MaxInt64)}, "half of the bucket's TTL of 10s"},
		"a margin up to the renewal": {Durations{LeaseMargin: given(2500 * ms)}, "leaves no room"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.set.Timing(10 * s)
			NewWithT(t).Expect(err).To(And(MatchError(validate.ErrInvalidOption), MatchError(ContainSubstring(c.text))))
		})
	}
}

func TestTimingDerivesLimits(t *testing.T) {
	for _, c := range []struct {
		ttl, lease, slack, request, spread time.Duration
	}{
		{s, 900 * ms, 37500 * time.Microsecond, 250 * ms, 62500 * time.Microsecond},
		{10 * s, 9 * s, 375 * ms, 2 * s, 625 * ms},
		{time.Hour, 54 * time.Minute, 135 * s, 2 * s, s},
	} {
		g := NewWithT(t)
		timing, err := (&Durations{}).Timing(c.ttl)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect([]time.Duration{timing.LeaseTime(), timing.Slack(), timing.RequestTimeout(), timing.Spread()}).To(Equal([]time.Duration{c.lease, c.slack, c.request, c.spread}))
	}
}

func TestLeaseLapsesLaterThanTheDifferenceOfClocksExplains(t *testing.T) {
	const slowest = 12.0 / 13 // what a leader's clock shows of a second, in relation to one that is slewed ahead as much: 11/12 and 13/12
	for _, ttl := range []time.Duration{s, 10 * s, time.Hour} {
		g := NewWithT(t)
		timing, err := (&Durations{}).Timing(ttl)
		g.Expect(err).NotTo(HaveOccurred())
		lease := float64(timing.LeaseTime())
		g.Expect(float64(LapseTime(timing.LeaseTime(), ttl, true)) / 1.001).To(BeNumerically(">=", lease*12/11-1))
		g.Expect(float64(LapseTime(timing.LeaseTime(), ttl, false)) * slowest).To(BeNumerically(">=", lease*12/11-1))
		g.Expect(LapseTime(timing.LeaseTime(), ttl, true)).To(BeNumerically("<", ttl), "so that a crash is answered before the key expires")
		g.Expect(LapseTime(0, ttl, true)).To(Equal(LapseTime(timing.LeaseTime(), ttl, true)), "a shorter lease is not believed")
	}
}
