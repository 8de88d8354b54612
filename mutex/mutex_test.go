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
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/linear"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/session/sessiontest"
	"github.com/natscampaign/election/mutex"
)

const (
	ttl       = sessiontest.TTL
	standDown = 7500 * time.Millisecond
	key       = "migrate"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func newMutex(e *sessiontest.Env, name string, opts ...election.Option) (*mutex.Mutex, *faultproxy.Link) {
	e.Helper()
	bucket, l := e.Connect()
	m, err := mutex.New(name, key, bucket, opts...)
	e.Expect(err).NotTo(HaveOccurred())
	e.Cleanup(func() { _ = m.Unlock() })
	return m, l
}

func locked(e *sessiontest.Env, name string) (*mutex.Mutex, *faultproxy.Link) {
	e.Helper()
	m, l := newMutex(e, name)
	e.Expect(m.Lock(context.Background())).To(Succeed())
	return m, l
}

func TestLockHasAtMostOneHolderWhateverHappensToHolders(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		var turns atomic.Int64
		var history linear.Locks
		var all sync.WaitGroup
		end := time.Now().Add(20 * time.Minute)
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			m, l := newMutex(e, name)
			all.Go(func() {
				for time.Now().Before(end) {
					called := history.Call()
					e.Expect(m.Lock(context.Background())).To(Succeed())
					token := m.Term().Token()
					history.Acquired(i, called, 0, token)
					turns.Add(1)
					if rand.N(4) == 0 {
						l.Cut()
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
		history.Expect(e.T)
		e.Expect(turns.Load()).To(BeNumerically(">", 50))
	})
}

func TestWaiterAcquiresTheLockMillisecondsAfterUnlock(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, _ := locked(e, "a")
		waiter, _ := newMutex(e, "b")
		got := make(chan time.Time, 1)
		go func() {
			e.Expect(waiter.Lock(context.Background())).To(Succeed())
			got <- time.Now()
		}()
		time.Sleep(time.Minute)
		e.Expect(got).NotTo(Receive())
		unlocked := time.Now()
		e.Expect(a.Unlock()).To(Succeed())
		e.Expect((<-got).Sub(unlocked)).To(BeNumerically("<", 50*time.Millisecond))
		e.Expect(waiter.Unlock()).To(Succeed())
	})
}

func TestWaiterAcquiresTheLockMillisecondsAfterUnlockHoweverManyHaveGivenUp(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, _ := locked(e, "a")
		hasty, _ := newMutex(e, "hasty")
		for range 300 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			e.Expect(hasty.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
		}
		waiter, _ := newMutex(e, "b")
		for range 20 { // a holds the lock at the start of each
			got := make(chan time.Time, 1)
			go func() {
				e.Expect(waiter.Lock(context.Background())).To(Succeed())
				got <- time.Now()
			}()
			time.Sleep(time.Second)
			unlocked := time.Now()
			e.Expect(a.Unlock()).To(Succeed())
			e.Expect((<-got).Sub(unlocked)).To(BeNumerically("<", 50*time.Millisecond))
			a, waiter = waiter, a
		}
		e.Expect(a.Unlock()).To(Succeed())
	})
}

func TestLockingAgainWithinATTLTakesMilliseconds(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, _ := locked(e, "a")
		for range 10 {
			e.Expect(a.Unlock()).To(Succeed())
			time.Sleep(ttl / 2)
			began := time.Now()
			e.Expect(a.Lock(context.Background())).To(Succeed())
			e.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		}
	})
}

func TestLockingAgainTakesMillisecondsAlsoWhereExpiriesAreNotAnnounced(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		js, err := jetstream.New(e.Server.Connect(e.T))
		e.Expect(err).NotTo(HaveOccurred())
		plain, err := js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "PLAIN", TTL: ttl, Storage: jetstream.MemoryStorage})
		e.Expect(err).NotTo(HaveOccurred())
		m, err := mutex.New("a", key, plain, election.WithJetStream(js))
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(m.Lock(context.Background())).To(Succeed())
		e.Expect(m.Unlock()).To(Succeed())
		time.Sleep(ttl / 2)
		began := time.Now()
		e.Expect(m.Lock(context.Background())).To(Succeed())
		e.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		e.Expect(m.Unlock()).To(Succeed())
	})
}

func TestLostLockEndsItsContextAndIsNotAcquiredAgainByItself(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, l := locked(e, "a")
		ctx, term := a.Context(), a.Term()
		e.Expect(term.Valid()).To(BeTrue())
		l.Cut()
		cut := time.Now()
		<-a.Lost()
		e.Expect(time.Since(cut)).To(BeNumerically("<", ttl))
		e.Expect(context.Cause(ctx)).To(MatchError(election.ErrNotLeader))
		e.Expect(term.Valid()).To(BeFalse())
		l.Heal()
		waiter, _ := newMutex(e, "b")
		e.Expect(waiter.Lock(context.Background())).To(Succeed())
		e.Expect(a.Unlock()).To(MatchError(election.ErrNotLeader))
		e.Expect(waiter.Term().Valid()).To(BeTrue(), "Unlock by the former holder left the lock alone")
		e.Expect(waiter.Unlock()).To(Succeed())
		e.Expect(a.Lock(context.Background())).To(Succeed(), "the mutex can be locked again")
	})
}

func TestGoroutinesOfAProcessExcludeEachOther(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := newMutex(e, "a")
		var holding, overlaps int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				e.Expect(m.Lock(context.Background())).To(Succeed())
				if atomic.AddInt64(&holding, 1) > 1 {
					atomic.AddInt64(&overlaps, 1)
				}
				time.Sleep(time.Second)
				atomic.AddInt64(&holding, -1)
				e.Expect(m.Unlock()).To(Succeed())
			})
		}
		began := time.Now()
		all.Wait()
		e.Expect(overlaps).To(BeZero())
		e.Expect(time.Since(began)).To(BeNumerically("<", standDown+15*time.Second))
	})
}

func TestHolderLearnsWhyItLostTheLock(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, delay := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
			a, l := locked(e, "a")
			l.DelayReplies(delay)
			b, _ := newMutex(e, "b") // takes the lock before a slow holder has learned that it was deleted
			go func() { _ = b.Lock(context.Background()) }()
			time.Sleep(time.Minute)
			bucket, _ := e.Connect()
			e.Expect(bucket.Delete(context.Background(), key)).To(Succeed())
			<-a.Lost()
			ended, ok := errors.AsType[*election.TermEndedError](context.Cause(a.Context()))
			e.Expect(ok).To(BeTrue())
			e.Expect(ended.Reason).To(Equal(election.ReasonDeleted), delay.String())
			e.Expect(a.Unlock()).To(MatchError(election.ErrNotLeader))
		})
	}
}

func TestHolderIsNamedToEverybody(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, _ := newMutex(e, "a")
		b, _ := newMutex(e, "b")
		_, err := b.Holder(context.Background())
		e.Expect(err).To(MatchError(election.ErrNoLeader))
		go func() { _ = a.Lock(context.Background()) }()
		time.Sleep(standDown / 2)
		holder, err := b.Holder(context.Background())
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(holder.State).To(Equal(election.LeaderElectState))
		time.Sleep(standDown)
		for _, m := range []*mutex.Mutex{a, b} {
			holder, err := m.Holder(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(holder.Name).To(Equal("a"))
			e.Expect(holder.State).To(Equal(election.LeaderState))
			e.Expect(holder.Term).To(Equal(a.Term().Number))
		}
		e.Expect(a.Unlock()).To(Succeed())
		_, err = a.Holder(context.Background())
		e.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestUnlockOnADeadLinkReturnsAnErrorWhenTheLeaseHasEnded(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, l := locked(e, "a")
		term := a.Term()
		l.Cut()
		began := time.Now()
		e.Expect(a.Unlock()).To(HaveOccurred())
		e.Expect(term.Valid()).To(BeFalse())
		e.Expect(time.Since(began)).To(BeNumerically("<=", ttl))
	})
}

func TestLockThatNobodyElseWantsWaitsForNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := locked(e, "a")
		e.Expect(m.Unlock()).To(Succeed())
		began := time.Now()
		for range 100 {
			e.Expect(m.Lock(context.Background())).To(Succeed())
			e.Expect(m.Unlock()).To(Succeed())
		}
		e.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Millisecond), "on links and a server that take no time")
	})
}

func TestOnlyWaiterTakesTheLockAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		holder, _ := locked(e, "a")
		waiter, _ := newMutex(e, "b")
		for range 20 {
			got := make(chan time.Time)
			go func() {
				e.Expect(waiter.Lock(context.Background())).To(Succeed())
				got <- time.Now()
			}()
			time.Sleep(time.Second)
			unlocked := time.Now()
			e.Expect(holder.Unlock()).To(Succeed())
			e.Expect((<-got).Sub(unlocked)).To(BeNumerically("<", time.Millisecond))
			holder, waiter = waiter, holder
		}
		e.Expect(holder.Unlock()).To(Succeed())
	})
}
