package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/natscampaign/election"
)

// BenchmarkManyElections leads many elections from one process over one connection, and shows what they cost that process
// while nothing happens but renewals. The server is another process.
func BenchmarkManyElections(b *testing.B) {
	for _, n := range []int{2000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				manyElections(b, n, 30*time.Second, *ttls)
			}
		})
	}
}

func manyElections(b testing.TB, n int, ttl time.Duration, ttls int, opts ...election.Option) {
	f := newFleet(b, startServerProcess(b), ttl, 1)
	nc := f.connect()
	bucket := f.bucket(nc)
	before := footprint()

	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer running.Wait()
	defer cancel()
	opts = append(opts, election.OnLost(func() { f.losses.Add(1) }))
	all := make([]*election.Election, n)
	for i := range all {
		e, err := election.NewElection("a", fmt.Sprintf("key-%d", i), bucket, opts...)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = e
		running.Go(func() { _ = e.Start(ctx) })
	}
	leading := func() (n int) {
		for _, e := range all {
			if e.IsLeader() {
				n++
			}
		}
		return n
	}
	f.await("everybody leads", func() bool { return leading() == n })

	after, cpu := footprint(), cpuTime(b)
	least, most := n, 0
	for end := time.Now().Add(time.Duration(ttls) * ttl); time.Now().Before(end); time.Sleep(ttl / 30) {
		least = min(least, leading())
		most = max(most, runtime.NumGoroutine())
	}
	used := cpuTime(b) - cpu
	lost := int(f.losses.Load()) + n - least

	if m, ok := b.(*testing.B); ok {
		each := float64(n)
		m.ReportMetric(float64(lost), "lost")
		m.ReportMetric(float64(most), "goroutines")
		m.ReportMetric(float64(after.heap-before.heap)/each, "heap-bytes/election")
		m.ReportMetric(float64(after.stacks-before.stacks)/each, "stack-bytes/election")
		m.ReportMetric(used.Seconds()/float64(ttls), "cpu-s/TTL")
		m.ReportMetric(float64(used.Nanoseconds())/float64(ttls)/each/1e3, "cpu-µs/TTL/election")
	} else if lost > 0 {
		b.Errorf("%d lost", lost)
	}
}

// memory is what a process holds.
type memory struct{ heap, stacks int64 }

func footprint() memory {
	runtime.GC()
	runtime.GC() // what pools hold survives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{heap: int64(m.HeapAlloc), stacks: int64(m.StackInuse)}
}

func TestManyElectionsAreLed(t *testing.T) {
	t.Parallel()
	manyElections(t, 20, 6*time.Second, 1, steady...)
}
