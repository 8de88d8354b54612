package mutex_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/linear"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

const (
	ttl       = fleettest.TTL
	standDown = 7500 * time.Millisecond
	key       = "migrate"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newMutex(f *fleettest.Fleet, name string, opts ...election.Option) (*mutex.Mutex, *faultproxy.Link) {
	f.Helper()
	bucket, l := f.Connect()
	m, err := mutex.New(name, key, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	f.Cleanup(func() { _ = m.Unlock() })
	return m, l
}

func locked(f *fleettest.Fleet, name string) (*mutex.Mutex, *faultproxy.Link) {
	f.Helper()
	m, l := newMutex(f, name)
	f.Expect(m.Lock(context.Background())).To(Succeed())
	return m, l
}

// handOver has another wait for the lock that a holder unlocks after some time, and returns how long the other waited from then on.
func handOver(f *fleettest.Fleet, holder, waiter *mutex.Mutex, after time.Duration) time.Duration {
	f.Helper()
	got := make(chan time.Time, 1)
	go func() {
		f.Expect(waiter.Lock(context.Background())).To(Succeed())
		got <- time.Now()
	}()
	time.Sleep(after)
	f.Expect(got).NotTo(Receive())
	unlocked := time.Now()
	f.Expect(holder.Unlock()).To(Succeed())
	return (<-got).Sub(unlocked)
}

func TestLockHasAtMostOneHolderWhateverHappensToHolders(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		var turns atomic.Int64
		var history linear.Locks
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			m, l := newMutex(f, name)
			all.Go(func() {
				for time.Now().Before(end) {
					called := history.Call()
					f.Expect(m.Lock(context.Background())).To(Succeed())
					token := m.Term().Token()
					history.Acquired(i, called, 0, token)
					turns.Add(1)
					if rand.N(4) == 0 {
						fleettest.Cut(l)
					}
					select {
					case <-m.Lost():
					case <-time.After(rand.N(2 * ttl)):
					}
					called = history.Call()
					_ = m.Unlock()
					history.Ended(i, called, 0, token)
					l.Heal()
				}
			})
		}
		all.Wait()
		history.Expect(f.T)
		f.Expect(turns.Load()).To(BeNumerically(">", 50))
	})
}

func TestWaiterAcquiresTheLockMillisecondsAfterUnlock(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, _ := locked(f, "a")
		waiter, _ := newMutex(f, "b")
		f.Expect(handOver(f, a, waiter, time.Minute)).To(BeNumerically("<", 50*time.Millisecond))
		f.Expect(waiter.Unlock()).To(Succeed())
	})
}

func TestWaiterAcquiresTheLockMillisecondsAfterUnlockHoweverManyHaveGivenUp(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, _ := locked(f, "a")
		hasty, _ := newMutex(f, "hasty")
		for range 300 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			f.Expect(hasty.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
		}
		waiter, _ := newMutex(f, "b")
		for range 20 { // a holds the lock at the start of each
			f.Expect(handOver(f, a, waiter, time.Second)).To(BeNumerically("<", 50*time.Millisecond))
			a, waiter = waiter, a
		}
		f.Expect(a.Unlock()).To(Succeed())
	})
}

func TestLockingAgainWithinATTLTakesMilliseconds(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, _ := locked(f, "a")
		for range 10 {
			f.Expect(a.Unlock()).To(Succeed())
			time.Sleep(ttl / 2)
			began := time.Now()
			f.Expect(a.Lock(context.Background())).To(Succeed())
			f.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		}
	})
}

func TestLockingAgainTakesMillisecondsAlsoWhereExpiriesAreNotAnnounced(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		js := f.JetStream()
		plain, err := js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "PLAIN", TTL: ttl, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		m, err := mutex.New("a", key, plain, election.WithJetStream(js))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(m.Lock(context.Background())).To(Succeed())
		f.Expect(m.Unlock()).To(Succeed())
		time.Sleep(ttl / 2)
		began := time.Now()
		f.Expect(m.Lock(context.Background())).To(Succeed())
		f.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(m.Unlock()).To(Succeed())
	})
}

func TestLostLockEndsItsContextAndIsNotAcquiredAgainByItself(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, l := locked(f, "a")
		ctx, term := a.Context(), a.Term()
		f.Expect(term.Valid()).To(BeTrue())
		l.Cut()
		cut := time.Now()
		<-a.Lost()
		f.Expect(time.Since(cut)).To(BeNumerically("<", ttl))
		f.Expect(context.Cause(ctx)).To(MatchError(election.ErrNotLeader))
		f.Expect(term.Valid()).To(BeFalse())
		l.Heal()
		waiter, _ := newMutex(f, "b")
		f.Expect(waiter.Lock(context.Background())).To(Succeed())
		f.Expect(a.Unlock()).To(MatchError(election.ErrNotLeader))
		f.Expect(waiter.Term().Valid()).To(BeTrue(), "Unlock by the former holder left the lock alone")
		f.Expect(waiter.Unlock()).To(Succeed())
		f.Expect(a.Lock(context.Background())).To(Succeed(), "the mutex can be locked again")
	})
}

func TestGoroutinesOfAProcessExcludeEachOther(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := newMutex(f, "a")
		var holding, overlaps int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				f.Expect(m.Lock(context.Background())).To(Succeed())
				if atomic.AddInt64(&holding, 1) > 1 {
					atomic.AddInt64(&overlaps, 1)
				}
				time.Sleep(time.Second)
				atomic.AddInt64(&holding, -1)
				f.Expect(m.Unlock()).To(Succeed())
			})
		}
		began := time.Now()
		all.Wait()
		f.Expect(overlaps).To(BeZero())
		f.Expect(time.Since(began)).To(BeNumerically("<", standDown+15*time.Second))
	})
}

func TestHolderLearnsWhyItLostTheLock(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, delay := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
		fleettest.Run(t, func(f *fleettest.Fleet) {
			a, l := locked(f, "a")
			l.DelayReplies(delay)
			b, _ := newMutex(f, "b") // takes the lock before a slow holder has learned that it was deleted
			go func() { _ = b.Lock(context.Background()) }()
			time.Sleep(time.Minute)
			bucket, _ := f.Connect()
			f.Expect(bucket.Delete(context.Background(), key)).To(Succeed())
			<-a.Lost()
			ended, ok := errors.AsType[*election.TermEndedError](context.Cause(a.Context()))
			f.Expect(ok).To(BeTrue())
			f.Expect(ended.Reason).To(Equal(election.ReasonDeleted), delay.String())
			f.Expect(a.Unlock()).To(MatchError(election.ErrNotLeader))
		})
	}
}

func TestHolderIsNamedToEverybody(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, _ := newMutex(f, "a")
		b, _ := newMutex(f, "b")
		_, err := b.Holder(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		go func() { _ = a.Lock(context.Background()) }()
		time.Sleep(standDown / 2)
		holder, err := b.Holder(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(holder.State).To(Equal(election.LeaderElectState))
		time.Sleep(standDown)
		for _, m := range []*mutex.Mutex{a, b} {
			holder, err := m.Holder(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(holder.Name).To(Equal("a"))
			f.Expect(holder.State).To(Equal(election.LeaderState))
			f.Expect(holder.Term).To(Equal(a.Term().Number))
		}
		f.Expect(a.Unlock()).To(Succeed())
		_, err = a.Holder(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestUnlockOnADeadLinkReturnsAnErrorWhenTheLeaseHasEnded(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, l := locked(f, "a")
		term := a.Term()
		l.Cut()
		began := time.Now()
		f.Expect(a.Unlock()).To(HaveOccurred())
		f.Expect(term.Valid()).To(BeFalse())
		f.Expect(time.Since(began)).To(BeNumerically("<=", ttl))
	})
}

func TestLockThatNobodyElseWantsWaitsForNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := locked(f, "a")
		f.Expect(m.Unlock()).To(Succeed())
		began := time.Now()
		for range 100 {
			f.Expect(m.Lock(context.Background())).To(Succeed())
			f.Expect(m.Unlock()).To(Succeed())
		}
		f.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Millisecond), "on links and a server that take no time")
	})
}

func TestOnlyWaiterTakesTheLockAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		holder, _ := locked(f, "a")
		waiter, _ := newMutex(f, "b")
		for range 20 {
			f.Expect(handOver(f, holder, waiter, time.Second)).To(BeNumerically("<", time.Millisecond))
			holder, waiter = waiter, holder
		}
		f.Expect(holder.Unlock()).To(Succeed())
	})
}
