package semaphore_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/semaphore"
)

const (
	ttl   = 10 * time.Second
	key   = "imports"
	slots = 3
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a server on virtual time, for semaphores that each have a link to it of their own.
type bench struct {
	*testing.T
	*WithT
	server *natstest.Server
}

func onVirtualTime(t *testing.T, f func(b *bench)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		f(&bench{T: t, WithT: NewWithT(t), server: natstest.Start(t)})
	})
}

func (b *bench) semaphore(name string, opts ...election.Option) (*semaphore.Semaphore, *link.Link) {
	b.Helper()
	l := b.server.Link(b.T)
	nc := natstest.Connect(b.T, l)
	js, err := jetstream.New(nc)
	b.Expect(err).NotTo(HaveOccurred())
	s, err := semaphore.New(name, key, slots, b.server.Bucket(b.T, nc, ttl, natstest.WithMarkers), append(opts, election.WithJetStream(js))...)
	b.Expect(err).NotTo(HaveOccurred())
	return s, l
}

// full takes every slot.
func (b *bench) full() []*semaphore.Slot {
	b.Helper()
	var taken []*semaphore.Slot
	for i := range slots {
		s, _ := b.semaphore("holder-" + strconv.Itoa(i))
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Cleanup(func() { _ = slot.Release() })
		taken = append(taken, slot)
	}
	return taken
}

func TestNeverMoreSlotsAreHeldThanThereAreAndEverybodyComesToItsTurn(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		const processes = 6
		var holding, most atomic.Int64
		var turns [processes]int
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i := range processes {
			s, l := b.semaphore(strconv.Itoa(i))
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
	onVirtualTime(t, func(b *bench) {
		for _, slot := range b.full() {
			waiter, _ := b.semaphore("waiter")
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

func TestSlotOfACrashedHolderIsLostByTheClockAndThenGoesToAWaiter(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s, l := b.semaphore("a")
		taken := b.full()
		b.Expect(taken[0].Release()).To(Succeed())
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		l.Cut()
		waiter, _ := b.semaphore("b")
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
	onVirtualTime(t, func(b *bench) {
		taken := b.full()
		s, _ := b.semaphore("late")
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
	onVirtualTime(t, func(b *bench) {
		taken := b.full()
		waiter, _ := b.semaphore("waiter")
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
	onVirtualTime(t, func(b *bench) {
		bucket := b.server.Bucket(b.T, b.server.Connect(b.T), 0)
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
	onVirtualTime(t, func(b *bench) {
		registry := prometheus.NewPedanticRegistry()
		s, _ := b.semaphore("a", election.WithRegisterer(registry))
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
		slot, err := s.Acquire(context.Background())
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(names).To(HaveKey(slot.Term().Name), "names are used again")
		b.Expect(slot.Release()).To(Succeed())
	})
}
