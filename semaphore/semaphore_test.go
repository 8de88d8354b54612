package semaphore_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/fleettest"
	"github.com/natscampaign/election/internal/linear"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/session/sessiontest"
	"github.com/natscampaign/election/semaphore"
)

const (
	ttl   = sessiontest.TTL
	key   = "imports"
	slots = 3
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newSemaphore(e *sessiontest.Env, name string, opts ...election.Option) (*semaphore.Semaphore, *faultproxy.Link) {
	e.Helper()
	bucket, l := e.Connect()
	s, err := semaphore.New(name, key, slots, bucket, opts...)
	e.Expect(err).NotTo(HaveOccurred())
	return s, l
}

// full acquires every slot.
func full(e *sessiontest.Env) []*semaphore.Slot {
	e.Helper()
	var taken []*semaphore.Slot
	for i := range slots {
		s, _ := newSemaphore(e, "holder-"+strconv.Itoa(i))
		slot, err := s.Acquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Cleanup(func() { _ = slot.Release() })
		taken = append(taken, slot)
	}
	return taken
}

func TestAtMostAllSlotsAreHeldAndEachWaiterAcquiresOne(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		const processes = 6
		var holding, most atomic.Int64
		var turns [processes]int
		var history linear.Locks
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i := range processes {
			s, l := newSemaphore(e, strconv.Itoa(i))
			all.Go(func() {
				for time.Now().Before(end) {
					called := history.Call()
					slot, err := s.Acquire(context.Background())
					e.Expect(err).NotTo(HaveOccurred())
					token := slot.Term().Token()
					history.Acquired(i, called, slot.Number, token)
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
					called = history.Call()
					_ = slot.Release()
					history.Ended(i, called, slot.Number, token)
					l.Heal()
				}
			})
		}
		all.Wait()
		history.Expect(e.T)
		e.Expect(most.Load()).To(BeEquivalentTo(slots))
		for i, n := range turns {
			e.Expect(n).To(BeNumerically(">", 1200/10*slots/processes/3), "turns of %d: %v", i, turns)
		}
	})
}

func TestReleasedSlotIsAcquiredBeforeOneThatTakesAStandDown(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		taken := full(e)
		e.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(2 * ttl) // its key has expired
		e.Expect(taken[1].Release()).To(Succeed())
		s, _ := newSemaphore(e, "b")
		for i := range 20 {
			acquire := s.Acquire
			if i%2 == 0 {
				acquire = s.TryAcquire
			}
			began := time.Now()
			slot, err := acquire(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			e.Expect(slot.Number).To(Equal(taken[1].Number))
			e.Expect(slot.Release()).To(Succeed())
		}
	})
}

func TestSlotOfACrashedHolderIsLostByTheClockAndThenGoesToAWaiter(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		s, l := newSemaphore(e, "a")
		taken := full(e)
		e.Expect(taken[0].Release()).To(Succeed())
		slot, err := s.Acquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		l.Cut()
		waiter, _ := newSemaphore(e, "b")
		cut := time.Now()
		next, err := waiter.Acquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(slot.Context().Err()).To(HaveOccurred())
		e.Expect(slot.Term().Valid()).To(BeFalse())
		e.Expect(next.Number).To(Equal(slot.Number))
		e.Expect(next.Term().Token() > slot.Term().Token()).To(BeTrue())
		e.Expect(time.Since(cut)).To(BeNumerically("<", 2*ttl))
		e.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
		e.Expect(next.Term().Valid()).To(BeTrue())
		e.Expect(next.Release()).To(Succeed())
	})
}

func TestTryAcquireAcquiresAFreeSlotAndWaitsForNobody(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		taken := full(e)
		s, _ := newSemaphore(e, "late")
		began := time.Now()
		_, err := s.TryAcquire(context.Background())
		e.Expect(err).To(MatchError(semaphore.ErrFull))
		e.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		e.Expect(taken[1].Release()).To(Succeed())
		slot, err := s.TryAcquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(slot.Number).To(Equal(taken[1].Number))
		e.Expect(slot.Release()).To(Succeed())
		e.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
	})
}

func TestInvalidNumberOfSlotsAndUnsuitableBucketAreRefused(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		bucket := e.Server.Bucket(e.T, e.Server.Connect(e.T), 0)
		for _, n := range []int{-1, 0, semaphore.MaxSlots + 1} {
			_, err := semaphore.New("a", key, n, bucket)
			e.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring(strconv.Itoa(n)+" slots"))))
		}
		s, err := semaphore.New("a", key, 1, bucket)
		e.Expect(err).NotTo(HaveOccurred())
		_, err = s.Acquire(context.Background())
		e.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
	})
}

func TestProcessMayHoldSeveralSlotsAndWaitForMoreUnderNamesOfTheirOwn(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		registry := prometheus.NewPedanticRegistry()
		s, _ := newSemaphore(e, "a", election.WithRegisterer(registry))
		var held []*semaphore.Slot
		for range slots {
			slot, err := s.Acquire(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			e.Cleanup(func() { _ = slot.Release() })
			held = append(held, slot)
		}
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() {
				slot, err := s.Acquire(context.Background())
				e.Expect(err).NotTo(HaveOccurred())
				e.Expect(slot.Release()).To(Succeed())
			})
		}
		time.Sleep(time.Minute)
		_, err := registry.Gather()
		e.Expect(err).NotTo(HaveOccurred())
		names := map[string]bool{}
		for _, slot := range held {
			names[slot.Term().Name] = true
		}
		e.Expect(names).To(HaveLen(slots))
		e.Expect(held[1].Release()).To(Succeed())
		waiting.Wait()
		time.Sleep(time.Minute) // a name is free when all its sessions are done, which Release does not wait for
		slot, err := s.Acquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(names).To(HaveKey(slot.Term().Name), "names are used again")
		e.Expect(slot.Release()).To(Succeed())
	})
}

func TestPausedSlotsAreNotAcquired(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		s, _ := newSemaphore(e, "a")
		bucket, _ := e.Connect()
		operator, err := admin.New(bucket)
		e.Expect(err).NotTo(HaveOccurred())
		for i := range slots {
			e.Expect(operator.Pause(context.Background(), key+"."+strconv.Itoa(i))).To(Succeed())
		}
		began := time.Now()
		_, err = s.TryAcquire(context.Background())
		e.Expect(err).To(And(MatchError(semaphore.ErrFull), MatchError(ContainSubstring("of which an operator has paused 3"))))
		e.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
		got := make(chan *semaphore.Slot, 1)
		go func() {
			slot, err := s.Acquire(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			got <- slot
		}()
		time.Sleep(time.Second)
		e.Expect(operator.Resume(context.Background(), key+".1")).To(Succeed())
		slot := <-got
		e.Expect(slot.Number).To(Equal(1))
		e.Expect(time.Since(began)).To(BeNumerically("<", 6*ttl))
		e.Expect(slot.Release()).To(Succeed())
	})
}

func TestSlotsThatCannotBeWatchedAreReadAgainAndAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		taken := full(e)
		bucket, _ := e.Connect()
		s, err := semaphore.New("waiter", key, slots, fleettest.Unwatchable{KeyValue: bucket}, election.WithJetStream(bucket.JetStream()))
		e.Expect(err).NotTo(HaveOccurred())
		_, err = s.TryAcquire(context.Background())
		e.Expect(err).To(MatchError(semaphore.ErrFull))
		go func() {
			time.Sleep(time.Minute)
			_ = taken[2].Release()
		}()
		slot, err := s.Acquire(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(slot.Number).To(Equal(taken[2].Number))
		e.Expect(slot.Release()).To(Succeed())
	})
}
