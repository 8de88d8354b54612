package semaphore_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/semaphore"
)

func TestWaiterAcquiresASlotMillisecondsAfterOneWasReleased(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		for _, slot := range full(f) {
			waiter, _ := newSemaphore(f, "waiter")
			got := make(chan *semaphore.Slot, 1)
			var at time.Time
			go func() {
				next, err := waiter.Acquire(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				at = time.Now()
				got <- next
			}()
			time.Sleep(time.Minute)
			f.Expect(got).NotTo(Receive())
			released := time.Now()
			f.Expect(slot.Release()).To(Succeed())
			next := <-got
			f.Expect(at.Sub(released)).To(BeNumerically("<", 100*time.Millisecond))
			f.Expect(next.Number).To(Equal(slot.Number))
			f.Cleanup(func() { _ = next.Release() })
		}
	})
}

func TestWaiterThatStandsDownForOneSlotAcquiresAnotherThatIsReleasedMeanwhile(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		f.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(2 * ttl)
		s, _ := newSemaphore(f, "b")
		got := acquiring(f, s)
		time.Sleep(time.Second)
		f.Expect(got).NotTo(Receive())
		f.Expect(taken[1].Release()).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		var slot *semaphore.Slot
		f.Expect(got).To(Receive(&slot))
		f.Expect(slot.Number).To(Equal(taken[1].Number))
		f.Expect(slot.Release()).To(Succeed())
	})
}

func TestWaiterThatGivesUpHoldsNoSlot(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		waiter, _ := newSemaphore(f, "waiter")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := waiter.Acquire(ctx)
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
		for _, slot := range taken {
			f.Expect(slot.Release()).To(Succeed())
		}
		for range slots {
			slot, err := waiter.TryAcquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Cleanup(func() { _ = slot.Release() })
		}
	})
}

func TestAcquireEndsWithAConnectionThatIsClosed(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		full(f)
		bucket, _ := f.Connect()
		s, err := semaphore.New("waiter", key, slots, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background())
			result <- err
		}()
		time.Sleep(2 * ttl)
		closed := time.Now()
		bucket.JetStream().Conn().Close()
		f.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		f.Expect(time.Since(closed)).To(BeNumerically("<", time.Second))
		_, err = s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(nats.ErrConnectionClosed))
	})
}

func TestWaiterWithAFreshSlotLeavesTheOthersToTryAcquire(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		waiter, _ := newSemaphore(f, "waiter")
		got := acquiring(f, waiter)
		time.Sleep(time.Second) // it stands down for a slot
		var taken []*semaphore.Slot
		for i := range slots - 1 {
			s, _ := newSemaphore(f, "try-"+strconv.Itoa(i))
			slot, err := s.TryAcquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			taken = append(taken, slot)
		}
		taken = append(taken, <-got)
		s, _ := newSemaphore(f, "late")
		_, err := s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(semaphore.ErrFull))
		for _, slot := range taken {
			f.Expect(slot.Release()).To(Succeed())
		}
	})
}

func TestAcquireThatEndsReturnsTheErrorOfItsContext(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		full(f)
		for _, timeout := range []time.Duration{0, time.Microsecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, time.Second} {
			s, l := newSemaphore(f, "waiter")
			l.DelayReplies(time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			_, err := s.Acquire(ctx)
			f.Expect(err).To(Equal(context.DeadlineExceeded), timeout.String())
			cancel()
		}
	})
}

func TestWaitingForOneOfManySlotsCostsAHandfulOfRequests(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		const many = 50
		bucket, _ := f.Connect()
		holder, err := semaphore.New("holder", key, many, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				slot, err := holder.Acquire(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				f.Cleanup(func() { _ = slot.Release() })
			})
		}
		all.Wait()
		bucket, l := f.Connect()
		s, err := semaphore.New("waiter", key, many, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		var requests atomic.Int64
		l.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		defer cancel()
		_, err = s.Acquire(ctx)
		f.Expect(err).To(MatchError(context.DeadlineExceeded))
		f.Expect(requests.Load()).To(BeNumerically("<=", 5))
	})
}

// A waiter wins one slot at a time, and each slot of a crashed holder takes a stand-down. Waiters of one process stand down together.
func TestSlotsOfACrashedHolderTakeOneStandDownForAllThatWaitTogether(t *testing.T) {
	natstest.SkipIfShort(t)
	for together, most := range map[bool]time.Duration{
		true:  ttl + ttl, // the expiry, and a stand-down of 0.75 of the TTL
		false: ttl + slots*ttl,
	} {
		t.Run(strconv.FormatBool(together), func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				holder, l := newSemaphore(f, "holder")
				for range slots {
					slot, err := holder.Acquire(context.Background())
					f.Expect(err).NotTo(HaveOccurred())
					f.Cleanup(func() { _ = slot.Release() })
				}
				time.Sleep(ttl)
				waiter, _ := newSemaphore(f, "waiter")
				acquire := func() {
					slot, err := waiter.Acquire(context.Background())
					f.Expect(err).NotTo(HaveOccurred())
					f.Cleanup(func() { _ = slot.Release() })
				}
				l.Cut()
				crashed := time.Now()
				var all sync.WaitGroup
				for range slots {
					if together {
						all.Go(acquire)
					} else {
						acquire()
					}
				}
				all.Wait()
				f.T.Logf("%d slots after %v", slots, time.Since(crashed))
				f.Expect(time.Since(crashed)).To(BeNumerically("<=", most))
			})
		})
	}
}
