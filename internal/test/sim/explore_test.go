package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/schedules"
)

var quarters = flag.Int("quarters", 4, "for how many quarters of a TTL schedules with two faults are explored")

// TestAllSchedulesWithFewFaults plays every schedule of two candidates with up to two faults, and of three with one.
func TestAllSchedulesWithFewFaults(t *testing.T) {
	for _, x := range []Explorer{
		{Candidates: 2, Faults: 1, Connected: true, Markers: true, Quarters: 12},
		{Candidates: 2, Faults: 1, Connected: true, Markers: false, Quarters: 12},
		{Candidates: 2, Faults: 1, Connected: false, Markers: true, Quarters: 12},
		{Candidates: 2, Faults: 1, Connected: true, Markers: true, Speeds: true, Quarters: 12},
		{Candidates: 3, Faults: 1, Connected: true, Markers: true, Quarters: 12},
		{Candidates: 2, Faults: 2, Connected: true, Markers: true, Quarters: *quarters},
	} {
		t.Run(fmt.Sprintf("%d candidates, %d faults, connected: %v, markers: %v, speeds: %v", x.Candidates, x.Faults, x.Connected, x.Markers, x.Speeds), func(t *testing.T) {
			if testing.Short() && x.Faults > 1 {
				t.Skip("it takes a minute: not with -short")
			}
			explore(t, x)
		})
	}
}

// explore has several explorers share the schedules.
func explore(t *testing.T, x Explorer) {
	t.Helper()
	workers := runtime.GOMAXPROCS(0)
	began := time.Now()
	var mu sync.Mutex
	var failed *schedules.Result
	var all sync.WaitGroup
	played, requests := 0, 0
	coverage := schedules.NewCoverage(steps)
	for i := range workers {
		all.Go(func() {
			part := x
			part.Part = func(first int) bool { return first%workers == i }
			part.Report = func(r *schedules.Result) bool {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = r
				}
				return false
			}
			part.Run()
			mu.Lock()
			defer mu.Unlock()
			played, requests = played+part.Schedules, requests+part.Requests
			coverage.Add(part.Coverage)
		})
	}
	all.Wait()
	fmt.Printf("sim: %d schedules with %d requests in %v\n", played, requests, time.Since(began).Round(time.Millisecond))
	fmt.Print(coverage)
	if failed != nil {
		t.Errorf("%s\n%s", failed.Timeline(), strings.Join(failed.Failures, "\n"))
	}
}
