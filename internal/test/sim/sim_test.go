package sim

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/sim/judge"
)

var (
	schedules = flag.Uint64("schedules", 0, "how many schedules to play; 0 for the test's own number")
	promise   = flag.String("promise", "", "report violations of this promise only, such as P2")
	without   = flag.String("without", "", "leave out faults and acts whose names contain one of these texts, separated by commas, such as rewound,forged")
	firstSeed = flag.Uint64("seed", 0, "the seed of the first schedule, which counts up; 0 for a fresh seed")
)

// TestSchedules plays schedules and fails at the first that breaks a promise.
func TestSchedules(t *testing.T) {
	kinds := slices.Concat(faultNames[:], actNames[:])
	for _, text := range leftOut() {
		if !slices.ContainsFunc(kinds, func(name string) bool { return strings.Contains(name, text) }) {
			t.Fatalf("-without %q: no fault or act has this text in its name; the names are %q", text, kinds)
		}
	}
	var mu sync.Mutex
	tally, longest := judge.Tally{}, map[string]time.Duration{}
	var coverage Coverage
	n := uint64(2000)
	if testing.Short() {
		n = 100
	}
	began := time.Now()
	played, ok := playAll(t, n, func(r *Result) string {
		mu.Lock()
		defer mu.Unlock()
		tally.Add(r.Tally)
		coverage.add(r.Coverage)
		for why, d := range r.Overlaps {
			longest[why] = max(longest[why], d)
		}
		if !broken(r) {
			return ""
		}
		return fmt.Sprintf("%s\n%s\nrun only this schedule with: go test ./internal/test/sim -run TestSchedules -args -schedules 1 -seed %d",
			r.Timeline(), strings.Join(r.Failures, "\n"), r.Seed)
	})
	took := time.Since(began)
	fmt.Printf("sim: %d schedules in %v, %.0f per second; longest allowed overlaps: %v\n%v",
		played, took.Round(time.Millisecond), float64(played)/took.Seconds(), longest, tally)
	fmt.Print(&coverage)
	if steps, moves := coverage.unreached(); ok && len(leftOut()) == 0 && (played >= 2000 && len(steps) > 0 || played >= allMovesMade && len(moves) > 0) {
		t.Errorf("no schedule reached %v, and none made %v", steps, moves)
	}
	if ok && played >= 2000 && len(leftOut()) == 0 {
		for _, name := range slices.Concat(kinds, forgeryNames[:], []string{renewalDeleted, differentSpeeds, judge.WonAndLed, silentAPI, targetGone}) {
			if tally[name] == 0 {
				t.Errorf("no schedule had %q: a simulator without it tests less than it claims", name)
			}
		}
	}
}

// allMovesMade is how many schedules suffice for every move from a step to the next to be made in one of them.
const allMovesMade = 100_000

// A schedule that fails can be looked at again, and again after a change of the library.
func TestTheSeedDecidesEverything(t *testing.T) {
	for seed := range uint64(200) {
		if first, second := Run(seed).Timeline(), Run(seed).Timeline(); first != second {
			t.Fatalf("seed %d has two timelines:\n%s\n%s", seed, first, second)
		}
	}
}

// playAll plays schedules with consecutive seeds, as many as the flags say or else n, until one has a problem. problem may be called
// by several goroutines at once.
func playAll(t *testing.T, n uint64, problem func(*Result) string) (played uint64, ok bool) {
	if *schedules > 0 {
		n = *schedules
	}
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("sim: seeds %d to %d\n", seed, seed+n-1)
	var next, done atomic.Uint64
	var failed atomic.Bool
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n && !failed.Load(); i = next.Add(1) - 1 {
					found := problem(play(t, seed+i))
					if n := done.Add(1); n%100_000 == 0 {
						fmt.Printf("sim: %d schedules\n", n)
					}
					if found != "" && !failed.Swap(true) {
						t.Error(found)
					}
				}
			})
		}
	})
	return done.Load(), !failed.Load()
}

// leftOut returns the texts of -without.
func leftOut() []string {
	return strings.FieldsFunc(*without, func(r rune) bool { return r == ',' })
}

// broken reports whether the schedule broke a promise that the test watches.
func broken(r *Result) bool {
	return slices.ContainsFunc(r.Failures, func(f string) bool { return *promise == "" || strings.HasPrefix(f, *promise+":") })
}

// play plays one schedule.
func play(t *testing.T, seed uint64) (r *Result) {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("seed %d: %v", seed, p))
		}
	}()
	t.Helper()
	return Run(seed, leftOut()...)
}
