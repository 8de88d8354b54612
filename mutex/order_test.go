package mutex_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// queue is waiters that hold the lock for a moment, and the order in which they had it.
type queue struct {
	*fleettest.Fleet
	hold time.Duration

	mu      sync.Mutex
	arrived []string
	served  []string
	waiters sync.WaitGroup
}

// join has one more waiter arrive, which gives up when ctx ends.
func (q *queue) join(ctx context.Context, name string) *faultproxy.Link {
	m, l := newMutex(q.Fleet, name)
	q.arrived = append(q.arrived, name)
	q.waiters.Go(func() {
		if m.Lock(ctx) != nil {
			return
		}
		q.mu.Lock()
		q.served = append(q.served, name)
		q.mu.Unlock()
		time.Sleep(q.hold)
		_ = m.Unlock()
	})
	time.Sleep(20 * time.Millisecond)
	return l
}

func TestWaitersAcquireTheLockInTheOrderInWhichTheyCame(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, hold := range []time.Duration{0, 999 * time.Millisecond, 2 * ttl} {
		for _, n := range []int{2, 8, 40} {
			t.Run(fmt.Sprintf("%d waiters for %v", n, hold), func(t *testing.T) {
				fleettest.Run(t, func(f *fleettest.Fleet) {
					q := &queue{Fleet: f, hold: hold}
					holder, _ := locked(f, "holder")
					for i := range n {
						q.join(context.Background(), fmt.Sprintf("w%02d", i))
					}
					f.Expect(holder.Unlock()).To(Succeed())
					for i := range n { // while the lock is passed on, but not just when it changes hands
						time.Sleep(time.Millisecond)
						q.join(context.Background(), fmt.Sprintf("x%02d", i))
					}
					q.waiters.Wait()
					f.Expect(q.served).To(Equal(q.arrived))
				})
			})
		}
	}
}

func TestWaiterThatGivesUpKeepsNobodyWaiting(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		q := &queue{Fleet: f}
		holder, _ := locked(f, "holder")
		ctx, giveUp := context.WithCancel(context.Background())
		for i := range 30 {
			q.join(ctx, "hasty-"+strconv.Itoa(i))
		}
		q.arrived = nil
		q.join(context.Background(), "patient")
		time.Sleep(time.Minute)
		giveUp()
		time.Sleep(time.Second)
		unlocked := time.Now()
		f.Expect(holder.Unlock()).To(Succeed())
		q.waiters.Wait()
		f.Expect(q.served).To(Equal(q.arrived))
		f.Expect(time.Since(unlocked)).To(BeNumerically("<", 5*time.Millisecond))
	})
}

func TestWaiterThatGivesUpAsItAcquiresTheLockPassesTheQueueOn(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		q := &queue{Fleet: f}
		holder, _ := locked(f, "holder")
		ctx, giveUp := context.WithCancel(context.Background())
		hasty := q.join(ctx, "hasty")
		q.arrived = nil
		for i := range 10 {
			q.join(context.Background(), strconv.Itoa(i))
		}
		hasty.OnRequest(func(m faultproxy.Message) {
			if strings.HasPrefix(m.Subject, "$KV.") {
				giveUp()
			}
		})
		f.Expect(holder.Unlock()).To(Succeed())
		q.waiters.Wait()
		f.Expect(ctx.Err()).To(HaveOccurred())
		f.Expect(q.served).To(Equal(q.arrived))
	})
}

func TestWaiterThatIsCutOffIsPassedOverAndNobodyElse(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		q := &queue{Fleet: f, hold: 50 * time.Millisecond}
		holder, _ := locked(f, "holder")
		gone := q.join(context.Background(), "gone")
		for i := range 10 {
			q.join(context.Background(), strconv.Itoa(i))
		}
		gone.Cut()
		unlocked := time.Now()
		f.Expect(holder.Unlock()).To(Succeed())
		time.Sleep(10*(50+5)*time.Millisecond + 100*time.Millisecond)
		q.mu.Lock()
		f.Expect(q.served).To(Equal(q.arrived[1:]), "it costs the others a tenth of a second, once")
		q.mu.Unlock()
		gone.Heal()
		q.waiters.Wait()
		f.Expect(q.served).To(HaveLen(11))
		f.Expect(time.Since(unlocked)).To(BeNumerically("<", ttl))
	})
}

func TestWaiterThatNobodyHasSeenIsServedAllTheSame(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		q := &queue{Fleet: f, hold: 200 * time.Millisecond}
		holder, _ := locked(f, "holder")
		unseen, l := newMutex(f, "unseen")
		lost := time.Now().Add(time.Second)
		l.LoseRequests(func(m faultproxy.Message) bool {
			return time.Now().Before(lost) && strings.HasPrefix(m.Subject, "$KV.") // its first attempts are
		})
		acquired := make(chan time.Time, 1)
		limit, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		go func() {
			_ = unseen.Lock(limit)
			acquired <- time.Now()
			_ = unseen.Unlock()
		}()
		time.Sleep(2 * time.Second)
		ctx, end := context.WithCancel(context.Background())
		for i := range 12 { // who queue again and again
			m, _ := newMutex(f, strconv.Itoa(i))
			q.waiters.Go(func() {
				for m.Lock(ctx) == nil {
					time.Sleep(q.hold)
					_ = m.Unlock()
				}
			})
		}
		time.Sleep(time.Second)
		unlocked := time.Now()
		f.Expect(holder.Unlock()).To(Succeed())
		f.Expect((<-acquired).Sub(unlocked)).To(BeNumerically("<", 5*ttl))
		end()
		q.waiters.Wait()
	})
}

func TestEachWaiterHasItsTurnHoweverManyArriveLater(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		const turns = 200
		var taken [4]int
		var all sync.WaitGroup
		left := turns // protected by the lock under test
		first, _ := locked(f, "first")
		for i := range taken {
			m, _ := newMutex(f, strconv.Itoa(i))
			all.Go(func() {
				for more := true; more; {
					f.Expect(m.Lock(context.Background())).To(Succeed())
					if more = left > 0; more {
						left--
						taken[i]++
					}
					time.Sleep(rand.N(200 * time.Millisecond))
					f.Expect(m.Unlock()).To(Succeed())
				}
			})
			time.Sleep(time.Minute) // all but the last have waited for a long time
		}
		f.Expect(first.Unlock()).To(Succeed())
		all.Wait()
		for _, n := range taken {
			f.Expect(n).To(BeNumerically("~", turns/len(taken), 1), "turns: %v", taken)
		}
	})
}
