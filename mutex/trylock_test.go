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
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/session/sessiontest"
	"github.com/natscampaign/election/mutex"
)

func TestLockThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		for _, timeout := range []time.Duration{0, time.Millisecond, standDown / 2, standDown - time.Millisecond} {
			m, _ := newMutex(e, "a")
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			e.Expect(m.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			other, _ := newMutex(e, "b")
			e.Expect(other.TryLock(context.Background())).To(Succeed(), timeout.String())
			e.Expect(other.Unlock()).To(Succeed())
			e.Expect(m.Lock(context.Background())).To(Succeed())
			e.Expect(m.Unlock()).To(Succeed())
			time.Sleep(2 * ttl) // until the key has expired
		}
	})
}

func TestTryLockAcquiresAFreeLockAndWaitsForNobody(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		a, _ := newMutex(e, "a")
		other, _ := newMutex(e, "b")
		e.Expect(a.TryLock(context.Background())).To(Succeed())
		began := time.Now()
		e.Expect(other.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring(`"a"`))))
		e.Expect(a.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		e.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		e.Expect(a.Unlock()).To(Succeed())
		e.Expect(other.TryLock(context.Background())).To(Succeed())
		e.Expect(other.Unlock()).To(Succeed())
	})
}

func TestTryLockRightAfterUnlockFindsTheLockFree(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := locked(e, "a")
		for range 100 {
			e.Expect(m.Unlock()).To(Succeed())
			e.Expect(m.TryLock(context.Background())).To(Succeed())
		}
		e.Expect(m.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		e.Expect(m.Unlock()).To(Succeed())
	})
}

func TestOneOfManyTryLocksSucceedsAndTheOthersReturnErrLocked(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		var acquired, refused atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			m, _ := newMutex(e, "x")
			all.Go(func() {
				switch err := m.TryLock(context.Background()); {
				case err == nil:
					acquired.Add(1)
				case errors.Is(err, mutex.ErrLocked):
					refused.Add(1)
				}
			})
		}
		all.Wait()
		e.Expect(acquired.Load()).To(BeEquivalentTo(1))
		e.Expect(refused.Load()).To(BeEquivalentTo(9))
	})
}

// An attempt that is withdrawn may be applied late, and then is seen to hold the key until it is released.
func TestOneOfManyTryLocksOverUnevenLinksAcquiresAFreeLock(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		const tries, rounds = 6, 100
		var all [tries]*mutex.Mutex
		var links [tries]*faultproxy.Link
		for i := range all {
			all[i], links[i] = newMutex(e, strconv.Itoa(i))
		}
		e.Expect(all[0].Lock(context.Background())).To(Succeed())
		e.Expect(all[0].Unlock()).To(Succeed())
		for round := range rounds {
			for _, l := range links {
				l.DelayReplies(rand.N(300 * time.Millisecond))
			}
			var trying sync.WaitGroup
			var acquired, refused atomic.Int64
			for _, m := range all {
				trying.Go(func() {
					time.Sleep(rand.N(300 * time.Millisecond))
					switch err := m.TryLock(context.Background()); {
					case err == nil:
						acquired.Add(1)
						e.Expect(m.Unlock()).To(Succeed())
					case errors.Is(err, mutex.ErrLocked):
						refused.Add(1)
					}
				})
			}
			trying.Wait()
			e.Expect(acquired.Load()).To(BeNumerically(">", 0), "round %d", round)
			e.Expect(acquired.Load()+refused.Load()).To(BeEquivalentTo(tries), "round %d", round)
		}
	})
}

func TestTryLockOfAPausedElectionAnswersAtOnce(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := newMutex(e, "a")
		bucket, _ := e.Connect()
		operator, err := admin.New(bucket)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(operator.Pause(context.Background(), key)).To(Succeed())
		began := time.Now()
		e.Expect(m.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring(`"migrate" is paused by an operator`))))
		e.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		e.Expect(operator.Resume(context.Background(), key)).To(Succeed())
		e.Expect(m.TryLock(context.Background())).To(Succeed())
		e.Expect(m.Unlock()).To(Succeed())
	})
}

func TestMutexThatIsNotLockedHasAnEndedContextAndNoTerm(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := newMutex(e, "a")
		e.Expect(m.Unlock()).To(MatchError(election.ErrNotLeader))
		e.Expect(m.Context().Err()).To(HaveOccurred())
		e.Expect(m.Lost()).To(BeClosed())
		e.Expect(m.Term().Valid()).To(BeFalse())
	})
}

func TestContextOfALockHasTheValuesOfLocksContextButNotItsEnd(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		m, _ := newMutex(e, "a")
		type tag struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), tag{}, 7), 2*ttl)
		e.Expect(m.Lock(ctx)).To(Succeed())
		cancel()
		time.Sleep(time.Minute)
		e.Expect(m.Context().Value(tag{})).To(Equal(7))
		e.Expect(m.Context().Err()).NotTo(HaveOccurred())
		e.Expect(m.Unlock()).To(Succeed())
	})
}

func TestLockInAnUnsuitableBucketFailsAndMayBeTriedAgain(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		bucket := e.Server.Bucket(e.T, e.Server.Connect(e.T), 0)
		m, err := mutex.New("a", key, bucket)
		e.Expect(err).NotTo(HaveOccurred())
		for range 2 {
			e.Expect(m.Lock(context.Background())).To(MatchError(election.ErrBucketUnsuitable))
		}
		_, err = mutex.New("", "no key", bucket)
		e.Expect(err).To(MatchError(election.ErrInvalidOption))
	})
}

func TestLockEndsWithAConnectionThatIsClosed(t *testing.T) {
	natstest.SkipIfShort(t)
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		locked(e, "a")
		bucket, _ := e.Connect()
		m, err := mutex.New("b", key, bucket)
		e.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() { result <- m.Lock(context.Background()) }()
		time.Sleep(2 * ttl)
		closed := time.Now()
		bucket.JetStream().Conn().Close()
		e.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		e.Expect(time.Since(closed)).To(BeNumerically("<", time.Second))
		e.Expect(m.Lock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
		e.Expect(m.TryLock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
	})
}
