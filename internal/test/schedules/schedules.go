// Package schedules plays schedules of a simulator, many at once, and adds up what occurred in them and which steps they have reached.
package schedules

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
	number    = flag.Uint64("schedules", 0, "how many schedules to play; 0 for the test's own number")
	promise   = flag.String("promise", "", "report violations of this promise only, such as P2")
	without   = flag.String("without", "", "leave out faults and acts whose names contain one of these texts, separated by commas, such as rewound,forged")
	firstSeed = flag.Uint64("seed", 0, "the seed of the first schedule, which counts up; 0 for a fresh seed")
)

// Result is the outcome of a schedule.
type Result struct {
	Seed     uint64
	Failures []string    // the promises that were broken, and how
	Tally    judge.Tally // what occurred, and how often
	Coverage *Coverage
	Overlaps map[string]time.Duration // the longest allowed overlap of two leaders, by its excuse
	Timeline func() string            // the script and the journal
}

// Simulator plays schedules.
type Simulator struct {
	Package string                                       // whose test it is, as go test is given it
	Run     func(seed uint64, without ...string) *Result // plays the schedule of a seed, without faults and acts whose names contain one of the texts
	Names   []string                                     // of all faults and acts
	Others  []string                                     // what must occur besides
	Steps   Table                                        // all steps
	Own     uint64                                       // how many schedules the test plays by itself: so many have every fault, act and step
	Moves   uint64                                       // so many have every move from a step to the next
}

// Test plays schedules and fails at the first that breaks a promise.
func (s *Simulator) Test(t *testing.T) {
	t.Helper()
	for _, text := range leftOut() {
		if !slices.ContainsFunc(s.Names, func(name string) bool { return strings.Contains(name, text) }) {
			t.Fatalf("-without %q: no fault or act has this text in its name; the names are %q", text, s.Names)
		}
	}
	began := time.Now()
	sum := s.playAll(t)
	fmt.Printf("sim: %d schedules in %v, %.0f per second; longest allowed overlaps: %v\n%v%v",
		sum.played, time.Since(began).Round(time.Millisecond), float64(sum.played)/time.Since(began).Seconds(), sum.overlaps, sum.tally, sum.coverage)
	if t.Failed() || len(leftOut()) > 0 || sum.played < s.Own {
		return
	}
	if steps, moves := sum.coverage.unreached(); len(steps) > 0 || sum.played >= s.Moves && len(moves) > 0 {
		t.Errorf("no schedule reached %q, and none made %q", steps, moves)
	}
	for _, name := range slices.Concat(s.Names, s.Others) {
		if sum.tally[name] == 0 {
			t.Errorf("no schedule had %q: a simulator without it tests less than it claims", name)
		}
	}
}

// TestSeeds plays schedules twice: one that fails can be looked at again, and again after a change of the library.
func (s *Simulator) TestSeeds(t *testing.T, n uint64) {
	t.Helper()
	for seed := range n {
		if first, second := s.Run(seed).Timeline(), s.Run(seed).Timeline(); first != second {
			t.Fatalf("seed %d has two timelines:\n%s\n%s", seed, first, second)
		}
	}
}

// sum is what many schedules add up to.
type sum struct {
	mu       sync.Mutex
	played   uint64
	tally    judge.Tally
	coverage *Coverage
	overlaps map[string]time.Duration
}

func (x *sum) add(r *Result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.played++; x.played%100_000 == 0 {
		fmt.Printf("sim: %d schedules\n", x.played)
	}
	x.tally.Add(r.Tally)
	x.coverage.Add(r.Coverage)
	for why, d := range r.Overlaps {
		x.overlaps[why] = max(x.overlaps[why], d)
	}
}

// playAll plays schedules with consecutive seeds until one breaks a promise.
func (s *Simulator) playAll(t *testing.T) *sum {
	t.Helper()
	n := s.Own
	if testing.Short() {
		n = 100
	}
	if *number > 0 {
		n = *number
	}
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("sim: seeds %d to %d\n", seed, seed+n-1)
	sum := &sum{tally: judge.Tally{}, coverage: NewCoverage(s.Steps), overlaps: map[string]time.Duration{}}
	var next atomic.Uint64
	var failed atomic.Bool
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n && !failed.Load(); i = next.Add(1) - 1 {
					r := s.play(seed + i)
					sum.add(r)
					if broken(r) && !failed.Swap(true) {
						t.Errorf("%s\n%s\nrun only this schedule with: go test %s -run TestSchedules -args -schedules 1 -seed %d",
							r.Timeline(), strings.Join(r.Failures, "\n"), s.Package, r.Seed)
					}
				}
			})
		}
	})
	return sum
}

// play plays one schedule.
func (s *Simulator) play(seed uint64) *Result {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("seed %d: %v", seed, p))
		}
	}()
	return s.Run(seed, leftOut()...)
}

// leftOut returns the texts of -without.
func leftOut() []string {
	return strings.FieldsFunc(*without, func(r rune) bool { return r == ',' })
}

// broken reports whether the schedule broke a promise that the test watches.
func broken(r *Result) bool {
	return slices.ContainsFunc(r.Failures, func(f string) bool { return *promise == "" || strings.HasPrefix(f, *promise+":") })
}
