package mutex_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/session/sessiontest"
	"github.com/natscampaign/election/mutex"
)

func TestFiveHundredLocksOfAProcessLeaveNothingBehind(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		bucket, _ := e.Connect()
		nc := bucket.JetStream().Conn()
		round := func(n int) (goroutines, subscriptions int, heap uint64) {
			var all sync.WaitGroup
			for i := range n {
				m, err := mutex.New("a", fmt.Sprint("lock-", i), bucket)
				e.Expect(err).NotTo(HaveOccurred())
				all.Go(func() {
					e.Expect(m.Lock(context.Background())).To(Succeed())
					time.Sleep(ttl)
					e.Expect(m.Unlock()).To(Succeed())
				})
			}
			all.Wait()
			time.Sleep(3 * ttl) // until the keys and their markers have expired
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), nc.NumSubscriptions(), m.HeapAlloc
		}
		goroutines, subscriptions, _ := round(1)
		round(500)
		_, _, before := round(500)
		for range 3 {
			g, s, heap := round(500)
			e.Expect(g).To(BeNumerically("<=", goroutines))
			e.Expect(s).To(Equal(subscriptions))
			e.Expect(heap).To(BeNumerically("<", before+500<<10), "half a kilobyte for each lock would be more")
		}
	})
}
