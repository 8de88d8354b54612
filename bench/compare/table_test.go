//go:build linux

package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is durations. One that had not ended when the waiting did counts as that long at least.
type sample struct {
	values  []time.Duration
	atLeast map[time.Duration]bool
}

func (s *sample) add(d time.Duration, over bool, limit time.Duration) {
	if !over {
		d = limit
		if s.atLeast == nil {
			s.atLeast = map[time.Duration]bool{}
		}
		s.atLeast[d] = true
	}
	s.values = append(s.values, d)
}

// String shows the median in seconds, or in milliseconds with their unit, and the maximum in parentheses if it is another.
func (s *sample) String() string {
	if len(s.values) == 0 {
		return "not measured"
	}
	sorted := slices.Sorted(slices.Values(s.values))
	median, maximum := s.show(sorted[(len(sorted)-1)/2]), s.show(sorted[len(sorted)-1])
	if median == maximum {
		return median
	}
	return median + " (" + maximum + ")"
}

func (s *sample) show(d time.Duration) string {
	prefix := ""
	if s.atLeast[d] {
		prefix = ">"
	}
	switch {
	case d == 0:
		return "0"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%s%.1fms", prefix, d.Seconds()*1000)
	}
	return fmt.Sprintf("%s%.1f", prefix, d.Seconds())
}

// result is what was measured of one comparison.
type result struct {
	both     sample // for how long two processes led after a cut
	believed sample // for how long the cut leader led on
	handover sample
	kill     sample // from the death of the leader's process to another leader
	crash    sample // from the cut of the leader's link to another leader

	followerRate, leaderRate float64
}

func table(results []*result) string {
	var b strings.Builder
	b.WriteString("| | two leaders after a cut | cut leader leads on for | handover | leader killed | leader cut off | requests/s of a follower, of a leader |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for i, r := range results {
		if r == nil {
			continue
		}
		if len(r.handover.values) == 0 {
			fmt.Fprintf(&b, "| %s | not measured: see above |\n", comparisons[i].name)
			continue
		}
		fmt.Fprintf(&b, "| %s | %v | %v | %v | %v | %v | %.3f, %.2f |\n", comparisons[i].name,
			&r.both, &r.believed, &r.handover, &r.kill, &r.crash, r.followerRate, r.leaderRate)
	}
	return b.String()
}

func TestWhatDidNotEndIsShownAsALowerBound(t *testing.T) {
	var s sample
	for _, d := range []time.Duration{20 * time.Millisecond, 0, time.Second} {
		s.add(d, true, 0)
	}
	if got, want := s.String(), "20.0ms (1.0)"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	s.add(0, false, time.Minute)
	s.add(0, false, time.Minute)
	if got, want := s.String(), "1.0 (>60.0)"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	s.add(0, false, time.Minute)
	s.add(0, false, time.Minute)
	if got, want := s.String(), ">60.0"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
