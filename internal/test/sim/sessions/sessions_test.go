package sessions

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
)

var (
	schedules = flag.Int("schedules", 1000, "how many schedules to play")
	seed      = flag.Uint64("seed", 0, "the seed of the first schedule; 0 for a fresh one")
)

func TestSchedulesOfSessions(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 16
	}
	t.Logf("the first seed is %d", first)
	tally := map[string]int{}
	for i := range *schedules {
		r := Run(first + uint64(i))
		for what, n := range r.Tally {
			tally[what] += n
		}
		if len(r.Failures) > 0 {
			if path := os.Getenv("TIMELINE"); path != "" {
				_ = os.WriteFile(path, []byte(r.Timeline()), 0o600)
			}
			t.Fatalf("seed %d: %q", r.Seed, r.Failures)
		}
	}
	t.Log(tally)
}

// A schedule that fails can be looked at again, and again after a change of the library.
func TestTheSeedDecidesEverything(t *testing.T) {
	for seed := range uint64(100) {
		if first, second := Run(seed).Timeline(), Run(seed).Timeline(); first != second {
			t.Fatalf("seed %d has two timelines:\n%s\n%s", seed, first, second)
		}
	}
}
