package semaphore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/linear"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/semaphore"
)

const (
	ttl   = fleettest.TTL
	key   = "imports"
	slots = 3
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newSemaphore(f *fleettest.Fleet, name string, opts ...election.Option) (*semaphore.Semaphore, *faultproxy.Link) {
	f.Helper()
	bucket, l := f.Connect()
	s, err := semaphore.New(name, key, slots, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return s, l
}

// full acquires every slot.
func full(f *fleettest.Fleet) []*semaphore.Slot {
	f.Helper()
	var taken []*semaphore.Slot
	for i := range slots {
		s, _ := newSemaphore(f, "holder-"+strconv.Itoa(i))
		slot, err := s.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Cleanup(func() { _ = slot.Release() })
		taken = append(taken, slot)
	}
	return taken
}

// acquiring has a waiter acquire a slot, and returns the channel that receives it.
func acquiring(f *fleettest.Fleet, s *semaphore.Semaphore) <-chan *semaphore.Slot {
	got := make(chan *semaphore.Slot, 1)
	go func() {
		slot, err := s.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		got <- slot
	}()
	return got
}

func TestAtMostAllSlotsAreHeldAndEachWaiterAcquiresOne(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		const processes = 6
		var holding, most atomic.Int64
		var turns [processes]int
		var history linear.Locks
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i := range processes {
			s, l := newSemaphore(f, strconv.Itoa(i))
			all.Go(func() {
				for time.Now().Before(end) {
					called := history.Call()
					slot, err := s.Acquire(context.Background())
					f.Expect(err).NotTo(HaveOccurred())
					token := slot.Term().Token()
					history.Acquired(i, called, slot.Number, token)
					for now := holding.Add(1); now > most.Load(); {
						most.Store(now)
					}
					turns[i]++
					if rand.N(8) == 0 {
						fleettest.Cut(l)
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
		history.Expect(f.T)
		f.Expect(most.Load()).To(BeEquivalentTo(slots))
		for i, n := range turns {
			f.Expect(n).To(BeNumerically(">", 1200/10*slots/processes/3), "turns of %d: %v", i, turns)
		}
	})
}

func TestReleasedSlotIsAcquiredBeforeOneThatTakesAStandDown(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		f.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(2 * ttl) // its key has expired
		f.Expect(taken[1].Release()).To(Succeed())
		s, _ := newSemaphore(f, "b")
		for i := range 20 {
			acquire := s.Acquire
			if i%2 == 0 {
				acquire = s.TryAcquire
			}
			began := time.Now()
			slot, err := acquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			f.Expect(slot.Number).To(Equal(taken[1].Number))
			f.Expect(slot.Release()).To(Succeed())
		}
	})
}

func TestSlotOfACrashedHolderIsLostByTheClockAndThenGoesToAWaiter(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		s, l := newSemaphore(f, "a")
		taken := full(f)
		f.Expect(taken[0].Release()).To(Succeed())
		slot, err := s.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		l.Cut()
		waiter, _ := newSemaphore(f, "b")
		cut := time.Now()
		next, err := waiter.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(slot.Context().Err()).To(HaveOccurred())
		f.Expect(slot.Term().Valid()).To(BeFalse())
		f.Expect(next.Number).To(Equal(slot.Number))
		f.Expect(next.Term().Token() > slot.Term().Token()).To(BeTrue())
		f.Expect(time.Since(cut)).To(BeNumerically("<", 2*ttl))
		f.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
		f.Expect(next.Term().Valid()).To(BeTrue())
		f.Expect(next.Release()).To(Succeed())
	})
}

func TestTryAcquireAcquiresAFreeSlotAndWaitsForNobody(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		s, _ := newSemaphore(f, "late")
		began := time.Now()
		_, err := s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(semaphore.ErrFull))
		f.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		f.Expect(taken[1].Release()).To(Succeed())
		slot, err := s.TryAcquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(slot.Number).To(Equal(taken[1].Number))
		f.Expect(slot.Release()).To(Succeed())
		f.Expect(slot.Release()).To(MatchError(election.ErrNotLeader))
	})
}

func TestInvalidNumberOfSlotsAndUnsuitableBucketAreRefused(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		for _, n := range []int{-1, 0, semaphore.MaxSlots + 1} {
			_, err := semaphore.New("a", key, n, f.Bucket)
			f.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring(strconv.Itoa(n)+" slots"))))
		}
		s, err := semaphore.New("a", key, 1, f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = s.Acquire(context.Background())
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 })
}

func TestProcessMayHoldSeveralSlotsAndWaitForMoreUnderNamesOfTheirOwn(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		registry := prometheus.NewPedanticRegistry()
		s, _ := newSemaphore(f, "a", election.WithRegisterer(registry))
		var held []*semaphore.Slot
		for range slots {
			slot, err := s.Acquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Cleanup(func() { _ = slot.Release() })
			held = append(held, slot)
		}
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() {
				slot, err := s.Acquire(context.Background())
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(slot.Release()).To(Succeed())
			})
		}
		time.Sleep(time.Minute)
		_, err := registry.Gather()
		f.Expect(err).NotTo(HaveOccurred())
		names := map[string]bool{}
		for _, slot := range held {
			names[slot.Term().Name] = true
		}
		f.Expect(names).To(HaveLen(slots))
		f.Expect(held[1].Release()).To(Succeed())
		waiting.Wait()
		time.Sleep(time.Minute) // a name is free when all its candidacies are done, which Release does not wait for
		slot, err := s.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(names).To(HaveKey(slot.Term().Name), "names are used again")
		f.Expect(slot.Release()).To(Succeed())
	})
}

func TestPausedSlotsAreNotAcquired(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		s, _ := newSemaphore(f, "a")
		bucket, _ := f.Connect()
		operator, err := admin.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		for i := range slots {
			f.Expect(operator.Pause(context.Background(), key+"."+strconv.Itoa(i))).To(Succeed())
		}
		began := time.Now()
		_, err = s.TryAcquire(context.Background())
		f.Expect(err).To(And(MatchError(semaphore.ErrFull), MatchError(ContainSubstring("of which an operator has paused 3"))))
		f.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
		got := acquiring(f, s)
		time.Sleep(time.Second)
		f.Expect(operator.Resume(context.Background(), key+".1")).To(Succeed())
		slot := <-got
		f.Expect(slot.Number).To(Equal(1))
		f.Expect(time.Since(began)).To(BeNumerically("<", 6*ttl))
		f.Expect(slot.Release()).To(Succeed())
	})
}

// A reader found it: the waiter went on with a slot that was paused before it was released, and answered no other.
func TestSlotThatIsPausedWhileAHolderWaitsDoesNotKeepItFromAnother(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		s, _ := newSemaphore(f, "waiter")
		bucket, _ := f.Connect()
		operator, err := admin.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		got := acquiring(f, s)
		time.Sleep(time.Second)
		f.Expect(operator.Pause(context.Background(), key+"."+strconv.Itoa(taken[0].Number))).To(Succeed())
		f.Expect(taken[0].Release()).To(Succeed())
		time.Sleep(time.Second)
		released := time.Now()
		f.Expect(taken[1].Release()).To(Succeed())
		slot := <-got
		f.Expect(slot.Number).To(Equal(taken[1].Number))
		f.Expect(time.Since(released)).To(BeNumerically("<", time.Second))
		f.Expect(slot.Release()).To(Succeed())
	})
}

func TestTryAcquireOnAHostThatIsNotHealthySaysSo(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		s, err := semaphore.New("a", key, slots, bucket, election.WithHealthCheck(func(context.Context) error { return errors.New("disk full") }))
		f.Expect(err).NotTo(HaveOccurred())
		_, err = s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(ContainSubstring("this host is not healthy: disk full")))
	})
}

func TestSemaphoreTakesNoPlainValue(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		_, err := semaphore.New("a", key, slots, bucket, election.WithPlainValue())
		f.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring("WithPlainValue"))))
	})
}

func TestSlotsThatCannotBeWatchedAreReadAgainAndAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		taken := full(f)
		bucket, _ := f.Connect()
		s, err := semaphore.New("waiter", key, slots, fleettest.Unwatchable{KeyValue: bucket}, election.WithJetStream(bucket.JetStream()))
		f.Expect(err).NotTo(HaveOccurred())
		_, err = s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(semaphore.ErrFull))
		go func() {
			time.Sleep(time.Minute)
			_ = taken[2].Release()
		}()
		slot, err := s.Acquire(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(slot.Number).To(Equal(taken[2].Number))
		f.Expect(slot.Release()).To(Succeed())
	})
}

// The other candidate has won the only slot, and stands down for long.
func TestTryAcquireWaitsASecondForACandidateThatStandsDownThoughNothingCanBeWatched(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		elect := record.Record{Name: "elect", Instance: "elect.1", Attempt: "elect.1.1", LeaseMs: ttl.Milliseconds()}
		_, err := bucket.Put(context.Background(), key+".0", elect.Encode())
		f.Expect(err).NotTo(HaveOccurred())
		s, err := semaphore.New("waiter", key, 1, fleettest.Unwatchable{KeyValue: bucket}, election.WithJetStream(bucket.JetStream()))
		f.Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		_, err = s.TryAcquire(context.Background())
		f.Expect(err).To(MatchError(semaphore.ErrFull))
		f.Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
	})
}

// The server does not answer what is not permitted, and the caller has a deadline.
func TestSlotIsAcquiredBeforeTheDeadlineThoughItMayNotBeWatched(t *testing.T) {
	const users = `accounts: { A: { jetstream: enabled, users: [
		{ user: all, password: x }
		{ user: least, password: x, permissions: { publish: { deny: "$JS.API.CONSUMER.>" } } } ] } }
		no_auth_user: all`
	fleettest.RunGuarded(t, users, func(f *fleettest.Fleet) {
		bucket := f.Open(natstest.Connect(f.T, f.Server.Link(f.T), nats.UserInfo("least", "x")))
		s, err := semaphore.New("waiter", key, slots, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
		defer cancel()
		began := time.Now()
		slot, err := s.Acquire(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(time.Since(began)).To(BeNumerically("<", ttl+3*time.Second))
		f.Expect(slot.Release()).To(Succeed())
	})
}
