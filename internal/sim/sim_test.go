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
	"testing/synctest"
	"time"

	"github.com/natscampaign/election/internal/sim/judge"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules to play; 0 for 2000, or 300 with -short")
	promise   = flag.String("promise", "", "report violations of this promise only, such as P2")
	without   = flag.String("without", "", "leave out faults and acts whose names contain one of these texts, separated by commas, such as rewound,forged")
	firstSeed = flag.Uint64("seed", 0, "the seed of the first schedule, which counts up; 0 for a fresh seed")
)

// TestSchedules plays schedules and fails at the first that breaks a promise.
func TestSchedules(t *testing.T) {
	n, seed := *schedules, *firstSeed
	if n == 0 {
		if n = 2000; testing.Short() {
			n = 300
		}
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	kinds := slices.Concat(faultNames[:], actNames[:])
	for _, text := range leftOut() {
		if !slices.ContainsFunc(kinds, func(name string) bool { return strings.Contains(name, text) }) {
			t.Fatalf("-without %q: no fault or act has this text in its name; the names are %q", text, kinds)
		}
	}
	fmt.Printf("sim: seeds %d to %d\n", seed, seed+uint64(n)-1)
	s := &series{first: seed, n: uint64(n), tally: judge.Tally{}, overlap: map[string]time.Duration{}}
	began := time.Now()
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s.work(t)
			})
		}
	})
	took := time.Since(began)
	fmt.Printf("sim: %d schedules in %v, %.0f per second; longest allowed overlaps: %v\n%v",
		s.done.Load(), took.Round(time.Millisecond), float64(s.done.Load())/took.Seconds(), s.overlap, s.tally)
	if s.failed.Load() {
		return
	}
	if s.done.Load() >= 2000 && len(leftOut()) == 0 {
		for _, name := range slices.Concat(kinds, forgeryNames[:], []string{renewalDeleted, judge.WonAndLed}) {
			if s.tally[name] == 0 {
				t.Errorf("no schedule had %q: a simulator without it tests less than it claims", name)
			}
		}
	}
}

// series is a number of schedules with consecutive seeds.
type series struct {
	first, n uint64
	next     atomic.Uint64
	done     atomic.Uint64
	failed   atomic.Bool

	mu      sync.Mutex
	tally   judge.Tally
	overlap map[string]time.Duration // the longest, by its excuse
}

// work plays schedules until none is left, or one has failed.
func (s *series) work(t *testing.T) {
	for !s.failed.Load() {
		i := s.next.Add(1) - 1
		if i >= s.n {
			return
		}
		r := play(t, s.first+i)
		s.done.Add(1)
		s.mu.Lock()
		s.tally.Add(r.Tally)
		for why, d := range r.Overlaps {
			s.overlap[why] = max(s.overlap[why], d)
		}
		s.mu.Unlock()
		if broken(r) && !s.failed.Swap(true) {
			t.Errorf("%s\n%s\nrun only this schedule with: go test ./internal/sim -run TestSchedules -args -schedules 1 -seed %d",
				r.Timeline(), strings.Join(r.Failures, "\n"), r.Seed)
		}
	}
}

// leftOut returns the texts of -without.
func leftOut() []string {
	return strings.FieldsFunc(*without, func(r rune) bool { return r == ',' })
}

// broken reports whether the schedule broke a promise that the test watches.
func broken(r *Result) bool {
	return slices.ContainsFunc(r.Failures, func(f string) bool { return *promise == "" || strings.HasPrefix(f, *promise+":") })
}

// play plays one schedule in a bubble of its own.
func play(t *testing.T, seed uint64) (r *Result) {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("seed %d: %v", seed, p))
		}
	}()
	synctest.Test(t, func(*testing.T) { r = Run(seed, leftOut()...) })
	return r
}
