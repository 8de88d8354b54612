package mutex_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/hold/holdtest"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/mutex"
)

const (
	ttl       = holdtest.TTL
	standDown = 7500 * time.Millisecond
	key       = "migrate"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newMutex(b *holdtest.Bench, name string, opts ...election.Option) (*mutex.Mutex, *link.Link) {
	b.Helper()
	bucket, js, l := b.Connect()
	m, err := mutex.New(name, key, bucket, append(opts, election.WithJetStream(js))...)
	b.Expect(err).NotTo(HaveOccurred())
	b.Cleanup(func() { _ = m.Unlock() })
	return m, l
}

func locked(b *holdtest.Bench, name string) (*mutex.Mutex, *link.Link) {
	b.Helper()
	m, l := newMutex(b, name)
	b.Expect(m.Lock(context.Background())).To(Succeed())
	return m, l
}

func TestNeverMoreThanOneHoldsTheLockWhateverHappensToHolders(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		var holding, overlaps, turns atomic.Int64
		var last atomic.Pointer[election.Term]
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			m, l := newMutex(b, name)
			all.Go(func() {
				for time.Now().Before(end) {
					b.Expect(m.Lock(context.Background())).To(Succeed())
					term := m.Term()
					if holding.Add(1) > 1 {
						overlaps.Add(1)
					}
					if before := last.Swap(&term); before != nil && term.Token() <= before.Token() {
						overlaps.Add(1)
					}
					turns.Add(1)
					if rand.N(4) == 0 {
						l.Cut()
					}
					select {
					case <-m.Lost():
					case <-time.After(rand.N(2 * ttl)):
					}
					holding.Add(-1)
					_ = m.Unlock()
					l.Heal()
				}
			})
		}
		all.Wait()
		b.Expect(overlaps.Load()).To(BeZero())
		b.Expect(turns.Load()).To(BeNumerically(">", 50))
	})
}

func TestWaiterHasTheLockMillisecondsAfterItWasUnlocked(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		a, _ := locked(b, "a")
		waiter, _ := newMutex(b, "b")
		got := make(chan time.Time, 1)
		go func() {
			b.Expect(waiter.Lock(context.Background())).To(Succeed())
			got <- time.Now()
		}()
		time.Sleep(time.Minute)
		b.Expect(got).NotTo(Receive())
		unlocked := time.Now()
		b.Expect(a.Unlock()).To(Succeed())
		b.Expect((<-got).Sub(unlocked)).To(BeNumerically("<", 50*time.Millisecond))
		b.Expect(waiter.Unlock()).To(Succeed())
	})
}

func TestWhoeverWaitsForTheLockComesToHisTurnHoweverManyComeAfterHim(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		const turns = 600
		var taken [4]int
		var all sync.WaitGroup
		left := turns // guarded by the lock that is tried here
		first, _ := locked(b, "first")
		for i := range taken {
			m, _ := newMutex(b, strconv.Itoa(i))
			all.Go(func() {
				for more := true; more; {
					b.Expect(m.Lock(context.Background())).To(Succeed())
					if more = left > 0; more {
						left--
						taken[i]++
					}
					time.Sleep(rand.N(200 * time.Millisecond))
					b.Expect(m.Unlock()).To(Succeed())
				}
			})
			time.Sleep(time.Minute) // all but the last have waited for long
		}
		b.Expect(first.Unlock()).To(Succeed())
		all.Wait()
		for _, n := range taken {
			b.Expect(n).To(BeNumerically(">", turns/len(taken)/2), "turns: %v", taken)
		}
	})
}

func TestWaiterHasTheLockMillisecondsAfterItWasUnlockedHoweverManyHaveGivenUp(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		a, _ := locked(b, "a")
		hasty, _ := newMutex(b, "hasty")
		for range 300 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			b.Expect(hasty.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
		}
		waiter, _ := newMutex(b, "b")
		for range 20 { // a has it at each of them
			got := make(chan time.Time, 1)
			go func() {
				b.Expect(waiter.Lock(context.Background())).To(Succeed())
				got <- time.Now()
			}()
			time.Sleep(time.Second)
			unlocked := time.Now()
			b.Expect(a.Unlock()).To(Succeed())
			b.Expect((<-got).Sub(unlocked)).To(BeNumerically("<", 50*time.Millisecond))
			a, waiter = waiter, a
		}
		b.Expect(a.Unlock()).To(Succeed())
	})
}

func TestLockTakenAgainWithinATTLTakesMilliseconds(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		a, _ := locked(b, "a")
		for range 10 {
			b.Expect(a.Unlock()).To(Succeed())
			time.Sleep(ttl / 2)
			began := time.Now()
			b.Expect(a.Lock(context.Background())).To(Succeed())
			b.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		}
	})
}

func TestLockThatIsLostIsSeenToBeLostAndNotTakenAgainByItself(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		a, l := locked(b, "a")
		ctx, term := a.Context(), a.Term()
		b.Expect(term.Valid()).To(BeTrue())
		l.Cut()
		cut := time.Now()
		<-a.Lost()
		b.Expect(time.Since(cut)).To(BeNumerically("<", ttl))
		b.Expect(context.Cause(ctx)).To(MatchError(election.ErrNotLeader))
		b.Expect(term.Valid()).To(BeFalse())
		l.Heal()
		waiter, _ := newMutex(b, "b")
		b.Expect(waiter.Lock(context.Background())).To(Succeed())
		b.Expect(a.Unlock()).To(MatchError(election.ErrNotLeader))
		b.Expect(waiter.Term().Valid()).To(BeTrue(), "the unlock of who had lost it left it alone")
		b.Expect(waiter.Unlock()).To(Succeed())
		b.Expect(a.Lock(context.Background())).To(Succeed(), "it can be locked again")
	})
}

func TestGoroutinesOfAProcessExcludeEachOther(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		m, _ := newMutex(b, "a")
		var holding, overlaps int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				b.Expect(m.Lock(context.Background())).To(Succeed())
				if atomic.AddInt64(&holding, 1) > 1 {
					atomic.AddInt64(&overlaps, 1)
				}
				time.Sleep(time.Second)
				atomic.AddInt64(&holding, -1)
				b.Expect(m.Unlock()).To(Succeed())
			})
		}
		began := time.Now()
		all.Wait()
		b.Expect(overlaps).To(BeZero())
		b.Expect(time.Since(began)).To(BeNumerically("<", standDown+15*time.Second))
	})
}

func TestLockThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		for _, patience := range []time.Duration{0, time.Millisecond, standDown / 2, standDown - time.Millisecond} {
			m, _ := newMutex(b, "a")
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			b.Expect(m.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			other, _ := newMutex(b, "b")
			b.Expect(other.TryLock(context.Background())).To(Succeed(), patience.String())
			b.Expect(other.Unlock()).To(Succeed())
			b.Expect(m.Lock(context.Background())).To(Succeed())
			b.Expect(m.Unlock()).To(Succeed())
			time.Sleep(2 * ttl) // until the key says nothing any more
		}
	})
}

func TestTryLockTakesWhatIsFreeAndWaitsForNobody(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		a, _ := newMutex(b, "a")
		other, _ := newMutex(b, "b")
		b.Expect(a.TryLock(context.Background())).To(Succeed())
		began := time.Now()
		b.Expect(other.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring(`"a"`))))
		b.Expect(a.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		b.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		b.Expect(a.Unlock()).To(Succeed())
		b.Expect(other.TryLock(context.Background())).To(Succeed())
		b.Expect(other.Unlock()).To(Succeed())
	})
}

func TestTryLockRightAfterUnlockFindsTheLockFree(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		m, _ := locked(b, "a")
		for range 100 {
			b.Expect(m.Unlock()).To(Succeed())
			b.Expect(m.TryLock(context.Background())).To(Succeed())
		}
		b.Expect(m.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		b.Expect(m.Unlock()).To(Succeed())
	})
}

func TestOfManyThatTryAtOnceOneGetsTheLockAndTheOthersAreTold(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		var got, told atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			m, _ := newMutex(b, "x")
			all.Go(func() {
				switch err := m.TryLock(context.Background()); {
				case err == nil:
					got.Add(1)
				case errors.Is(err, mutex.ErrLocked):
					told.Add(1)
				}
			})
		}
		all.Wait()
		b.Expect(got.Load()).To(BeEquivalentTo(1))
		b.Expect(told.Load()).To(BeEquivalentTo(9))
	})
}

func TestMutexThatIsNotLockedIsSeenToBeSo(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		m, _ := newMutex(b, "a")
		b.Expect(m.Unlock()).To(MatchError(election.ErrNotLeader))
		b.Expect(m.Context().Err()).To(HaveOccurred())
		b.Expect(m.Lost()).To(BeClosed())
		b.Expect(m.Term().Valid()).To(BeFalse())
	})
}

func TestContextOfALockHasTheValuesOfItsCallerButNotItsEnd(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		m, _ := newMutex(b, "a")
		type tag struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), tag{}, 7), 2*ttl)
		b.Expect(m.Lock(ctx)).To(Succeed())
		cancel()
		time.Sleep(time.Minute)
		b.Expect(m.Context().Value(tag{})).To(Equal(7))
		b.Expect(m.Context().Err()).NotTo(HaveOccurred())
		b.Expect(m.Unlock()).To(Succeed())
	})
}

func TestLockOnABucketThatIsUnfitFailsAndMayBeTriedAgain(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		bucket := b.Server.Bucket(b.T, b.Server.Connect(b.T), 0)
		m, err := mutex.New("a", key, bucket)
		b.Expect(err).NotTo(HaveOccurred())
		for range 2 {
			b.Expect(m.Lock(context.Background())).To(MatchError(election.ErrBucketUnsuitable))
		}
		_, err = mutex.New("", "no key", bucket)
		b.Expect(err).To(MatchError(election.ErrInvalidOption))
	})
}

func TestLockEndsWithAConnectionThatIsClosed(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		locked(b, "a")
		bucket, js, _ := b.Connect()
		m, err := mutex.New("b", key, bucket, election.WithJetStream(js))
		b.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() { result <- m.Lock(context.Background()) }()
		time.Sleep(2 * ttl)
		closed := time.Now()
		js.Conn().Close()
		b.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		b.Expect(time.Since(closed)).To(BeNumerically("<", time.Second))
		b.Expect(m.Lock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
		b.Expect(m.TryLock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
	})
}
