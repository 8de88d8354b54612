package semaphore_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/hold/holdtest"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/semaphore"
)

const (
	ttl   = holdtest.TTL
	key   = "imports"
	slots = 3
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newSemaphore(b *holdtest.Bench, name string, opts ...election.Option) (*semaphore.Semaphore, *link.Link) {
	b.Helper()
	bucket, js, l := b.Connect()
	s, err := semaphore.New(name, key, slots, bucket, append(opts, election.WithJetStream(js))...)
	b.Expect(err).NotTo(HaveOccurred())
	return s, l
}

// full takes every slot.
func full(b *holdtest.Bench) []*semaphore.Slot {
	b.Helper()
	var taken []*semaphore.Slot
	for i := range slots {
		s, _ := newSemaphore(b, "holder-"+strconv.Itoa(i))
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Cleanup(func() { _ = slot.Release() })
		taken = append(taken, slot)
	}
	return taken
}

func TestNeverMoreSlotsAreHeldThanThereAreAndEverybodyComesToItsTurn(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		const processes = 6
		var holding, most atomic.Int64
		var turns [processes]int
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i := range processes {
			s, l := newSemaphore(b, strconv.Itoa(i))
			all.Go(func() {
				for time.Now().Before(end) {
					slot, err := s.Acquire(context.Background())
					b.Expect(err).NotTo(HaveOccurred())
					for now := holding.Add(1); now > most.Load(); {
						most.Store(now)
					}
					turns[i]++
					if rand.N(8) == 0 {
						l.Cut()
					}
					select {
					case <-slot.Context().Done():
					case <-time.After(rand.N(2 * ttl)):
					}
					holding.Add(-1)
					_ = slot.Release()
					l.Heal()
				}
			})
		}
		all.Wait()
		b.Expect(most.Load()).To(BeEquivalentTo(slots))
		for i, n := range turns {
			b.Expect(n).To(BeNumerically(">", 1200/10*slots/processes/3), "turns of %d: %v", i, turns)
		}
	})
}

func TestWaiterHasASlotMillisecondsAfterOneWasReleased(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		for _, slot := range full(b) {
			waiter, _ := newSemaphore(b, "waiter")
			got := make(chan *semaphore.Slot, 1)
			var at time.Time
			go func() {
				next, err := waiter.Acquire(context.Background())
				b.Expect(err).NotTo(HaveOccurred())
				at = time.Now()
				got <- next
			}()
			time.Sleep(time.Minute)
			b.Expect(got).NotTo(Receive())
			released := time.Now()
			b.Expect(slot.Release()).To(Succeed())
			next := <-got
			b.Expect(at.Sub(released)).To(BeNumerically("<", 100*time.Millisecond))
			b.Expect(next.Number).To(Equal(slot.Number))
			b.Cleanup(func() { _ = next.Release() })
		}
	})
}

func TestSlotThatWasReleasedIsTakenBeforeOneThatTakesAStandDown(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		taken := full(b)
		b.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(2 * ttl) // it says nothing any more of who held it
		b.Expect(taken[1].Release()).To(Succeed())
		s, _ := newSemaphore(b, "b")
		for i := range 20 {
			acquire := s.Acquire
			if i%2 == 0 {
				acquire = s.TryAcquire
			}
			began := time.Now()
			slot, err := acquire(context.Background())
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			b.Expect(slot.Number).To(Equal(taken[1].Number))
			b.Expect(slot.Release()).To(Succeed())
		}
	})
}

func TestWaiterThatStandsDownForOneSlotTakesAnotherThatIsReleasedMeanwhile(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		taken := full(b)
		b.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(2 * ttl)
		s, _ := newSemaphore(b, "b")
		got := make(chan *semaphore.Slot, 1)
		go func() {
			slot, err := s.Acquire(context.Background())
			b.Expect(err).NotTo(HaveOccurred())
			got <- slot
		}()
		time.Sleep(time.Second)
		b.Expect(got).NotTo(Receive())
		b.Expect(taken[1].Release()).To(Succeed())
		time.Sleep(100 * time.Millisecond)
		var slot *semaphore.Slot
		b.Expect(got).To(Receive(&slot))
		b.Expect(slot.Number).To(Equal(taken[1].Number))
		b.Expect(slot.Release()).To(Succeed())
	})
}

func TestSlotOfACrashedHolderIsLostByTheClockAndThenGoesToAWaiter(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		s, l := newSemaphore(b, "a")
		taken := full(b)
		b.Expect(taken[0].Release()).To(Succeed())
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		l.Cut()
		waiter, _ := newSemaphore(b, "b")
		cut := time.Now()
		next, err := waiter.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(slot.Context().Err()).To(HaveOccurred())
		b.Expect(slot.Term().Valid()).To(BeFalse())
		b.Expect(next.Number).To(Equal(slot.Number))
		b.Expect(next.Term().Token() > slot.Term().Token()).To(BeTrue())
		b.Expect(time.Since(cut)).To(BeNumerically("<", 2*ttl))
		b.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
		b.Expect(next.Term().Valid()).To(BeTrue())
		b.Expect(next.Release()).To(Succeed())
	})
}

func TestTryAcquireTakesWhatIsFreeAndWaitsForNobody(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		taken := full(b)
		s, _ := newSemaphore(b, "late")
		began := time.Now()
		_, err := s.TryAcquire(context.Background())
		b.Expect(err).To(MatchError(semaphore.ErrFull))
		b.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		b.Expect(taken[1].Release()).To(Succeed())
		slot, err := s.TryAcquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(slot.Number).To(Equal(taken[1].Number))
		b.Expect(slot.Release()).To(Succeed())
		b.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
	})
}

func TestWaiterThatGivesUpLeavesNoSlotTaken(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		taken := full(b)
		waiter, _ := newSemaphore(b, "waiter")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := waiter.Acquire(ctx)
		b.Expect(err).To(MatchError(context.DeadlineExceeded))
		for _, slot := range taken {
			b.Expect(slot.Release()).To(Succeed())
		}
		for range slots {
			slot, err := waiter.TryAcquire(context.Background())
			b.Expect(err).NotTo(HaveOccurred())
			b.Cleanup(func() { _ = slot.Release() })
		}
	})
}

func TestSemaphoreThatCannotBeIsRefused(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		bucket := b.Server.Bucket(b.T, b.Server.Connect(b.T), 0)
		for _, n := range []int{-1, 0, semaphore.MaxSlots + 1} {
			_, err := semaphore.New("a", key, n, bucket)
			b.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring(strconv.Itoa(n)+" slots"))))
		}
		s, err := semaphore.New("a", key, 1, bucket)
		b.Expect(err).NotTo(HaveOccurred())
		_, err = s.Acquire(context.Background())
		b.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
	})
}

func TestProcessMayHoldSeveralSlotsAndWaitForMoreUnderMetricsThatTellThemApart(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		registry := prometheus.NewPedanticRegistry()
		s, _ := newSemaphore(b, "a", election.WithRegisterer(registry))
		var held []*semaphore.Slot
		for range slots {
			slot, err := s.Acquire(context.Background())
			b.Expect(err).NotTo(HaveOccurred())
			b.Cleanup(func() { _ = slot.Release() })
			held = append(held, slot)
		}
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() {
				slot, err := s.Acquire(context.Background())
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(slot.Release()).To(Succeed())
			})
		}
		time.Sleep(time.Minute)
		_, err := registry.Gather()
		b.Expect(err).NotTo(HaveOccurred())
		names := map[string]bool{}
		for _, slot := range held {
			names[slot.Term().Name] = true
		}
		b.Expect(names).To(HaveLen(slots))
		b.Expect(held[1].Release()).To(Succeed())
		waiting.Wait()
		time.Sleep(time.Minute) // a name is free when all that stood under it is wound up, which Release does not wait for
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(names).To(HaveKey(slot.Term().Name), "names are used again")
		b.Expect(slot.Release()).To(Succeed())
	})
}

func TestAcquireEndsWithAConnectionThatIsClosed(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		full(b)
		bucket, js, _ := b.Connect()
		s, err := semaphore.New("waiter", key, slots, bucket, election.WithJetStream(js))
		b.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background())
			result <- err
		}()
		time.Sleep(2 * ttl)
		closed := time.Now()
		js.Conn().Close()
		b.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		b.Expect(time.Since(closed)).To(BeNumerically("<", time.Second))
		_, err = s.TryAcquire(context.Background())
		b.Expect(err).To(MatchError(nats.ErrConnectionClosed))
	})
}
