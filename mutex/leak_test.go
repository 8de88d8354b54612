package mutex_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

func TestFiveHundredLocksOfAProcessLeaveNothingBehind(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		nc := bucket.JetStream().Conn()
		round := func(n int) (goroutines, subscriptions int, heap uint64) {
			var all sync.WaitGroup
			for i := range n {
				m, err := mutex.New("a", fmt.Sprint("lock-", i), bucket)
				f.Expect(err).NotTo(HaveOccurred())
				all.Go(func() {
					f.Expect(m.Lock(context.Background())).To(Succeed())
					time.Sleep(ttl)
					f.Expect(m.Unlock()).To(Succeed())
				})
			}
			all.Wait()
			time.Sleep(3 * ttl) // until the keys and their markers have expired
			synctest.Wait()
			runtime.GC()
			runtime.GC() // what a pool has in store goes with the second
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), nc.NumSubscriptions(), m.HeapAlloc
		}
		goroutines, subscriptions, _ := round(1)
		round(500)
		_, _, before := round(500)
		const rounds = 6
		// The least of the later rounds: the server's own heap goes up and down by half a megabyte, and the runtime starts goroutines, too.
		leastHeap, leastGoroutines := uint64(math.MaxUint64), math.MaxInt
		for i := range rounds {
			g, s, heap := round(500)
			f.Expect(s).To(Equal(subscriptions))
			if i >= rounds/2 {
				leastHeap, leastGoroutines = min(leastHeap, heap), min(leastGoroutines, g)
			}
		}
		f.Expect(leastGoroutines).To(BeNumerically("<=", goroutines))
		f.Expect(leastHeap).To(BeNumerically("<", before+rounds/2*500*700), "700 bytes for each lock would be more")
	})
}
