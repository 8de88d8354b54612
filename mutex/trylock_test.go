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
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

func TestLockThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		for _, timeout := range []time.Duration{0, time.Millisecond, standDown / 2, standDown - time.Millisecond} {
			m, _ := newMutex(f, "a")
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			f.Expect(m.Lock(ctx)).To(MatchError(context.DeadlineExceeded))
			cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			other, _ := newMutex(f, "b")
			f.Expect(other.TryLock(context.Background())).To(Succeed(), timeout.String())
			f.Expect(other.Unlock()).To(Succeed())
			f.Expect(m.Lock(context.Background())).To(Succeed())
			f.Expect(m.Unlock()).To(Succeed())
			time.Sleep(2 * ttl) // until the key has expired
		}
	})
}

func TestTryLockAcquiresAFreeLockAndWaitsForNobody(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a, _ := newMutex(f, "a")
		other, _ := newMutex(f, "b")
		f.Expect(a.TryLock(context.Background())).To(Succeed())
		began := time.Now()
		f.Expect(other.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring(`"a"`))))
		f.Expect(a.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		f.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		f.Expect(a.Unlock()).To(Succeed())
		f.Expect(other.TryLock(context.Background())).To(Succeed())
		f.Expect(other.Unlock()).To(Succeed())
	})
}

func TestTryLockRightAfterUnlockFindsTheLockFree(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := locked(f, "a")
		for range 100 {
			f.Expect(m.Unlock()).To(Succeed())
			f.Expect(m.TryLock(context.Background())).To(Succeed())
		}
		f.Expect(m.TryLock(context.Background())).To(MatchError(mutex.ErrLocked))
		f.Expect(m.Unlock()).To(Succeed())
	})
}

func TestOneOfManyTryLocksSucceedsAndTheOthersReturnErrLocked(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		var acquired, refused atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			m, _ := newMutex(f, "x")
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
		f.Expect(acquired.Load()).To(BeEquivalentTo(1))
		f.Expect(refused.Load()).To(BeEquivalentTo(9))
	})
}

// An attempt that is withdrawn may be applied late, and then is seen to hold the key until it is released.
func TestOneOfManyTryLocksOverUnevenLinksAcquiresAFreeLock(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		const tries, rounds = 6, 100
		var all [tries]*mutex.Mutex
		var links [tries]*faultproxy.Link
		for i := range all {
			all[i], links[i] = newMutex(f, strconv.Itoa(i))
		}
		f.Expect(all[0].Lock(context.Background())).To(Succeed())
		f.Expect(all[0].Unlock()).To(Succeed())
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
						f.Expect(m.Unlock()).To(Succeed())
					case errors.Is(err, mutex.ErrLocked):
						refused.Add(1)
					}
				})
			}
			trying.Wait()
			f.Expect(acquired.Load()).To(BeNumerically(">", 0), "round %d", round)
			f.Expect(acquired.Load()+refused.Load()).To(BeEquivalentTo(tries), "round %d", round)
		}
	})
}

func TestTryLockOnAHostThatIsNotHealthyAnswersAtOnce(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		m, err := mutex.New("a", key, bucket, election.WithHealthCheck(func(context.Context) error { return errors.New("disk full") }))
		f.Expect(err).NotTo(HaveOccurred())
		began := time.Now()
		f.Expect(m.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring("this host is not healthy: disk full"))))
		f.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
	})
}

func TestTryLockOfAPausedElectionAnswersAtOnce(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := newMutex(f, "a")
		bucket, _ := f.Connect()
		operator, err := admin.New(bucket)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(operator.Pause(context.Background(), key)).To(Succeed())
		began := time.Now()
		f.Expect(m.TryLock(context.Background())).To(And(MatchError(mutex.ErrLocked), MatchError(ContainSubstring(`"migrate" is paused by an operator`))))
		f.Expect(time.Since(began)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(operator.Resume(context.Background(), key)).To(Succeed())
		f.Expect(m.TryLock(context.Background())).To(Succeed())
		f.Expect(m.Unlock()).To(Succeed())
	})
}

func TestMutexThatIsNotLockedHasAnEndedContextAndNoTerm(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := newMutex(f, "a")
		f.Expect(m.Unlock()).To(MatchError(election.ErrNotLeader))
		f.Expect(m.Context().Err()).To(HaveOccurred())
		f.Expect(m.Lost()).To(BeClosed())
		f.Expect(m.Term().Valid()).To(BeFalse())
	})
}

func TestContextOfALockHasTheValuesOfLocksContextButNotItsEnd(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, _ := newMutex(f, "a")
		type tag struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), tag{}, 7), 2*ttl)
		f.Expect(m.Lock(ctx)).To(Succeed())
		cancel()
		time.Sleep(time.Minute)
		f.Expect(m.Context().Value(tag{})).To(Equal(7))
		f.Expect(m.Context().Err()).NotTo(HaveOccurred())
		f.Expect(m.Unlock()).To(Succeed())
	})
}

func TestLockInAnUnsuitableBucketFailsAndMayBeTriedAgain(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		m, err := mutex.New("a", key, f.Bucket)
		f.Expect(err).NotTo(HaveOccurred())
		for range 2 {
			f.Expect(m.Lock(context.Background())).To(MatchError(election.ErrBucketUnsuitable))
		}
		_, err = mutex.New("", "no key", f.Bucket)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 })
}

func TestLockEndsWithAConnectionThatIsClosed(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		locked(f, "a")
		bucket, _ := f.Connect()
		m, err := mutex.New("b", key, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		result := make(chan error, 1)
		go func() { result <- m.Lock(context.Background()) }()
		time.Sleep(2 * ttl)
		closed := time.Now()
		bucket.JetStream().Conn().Close()
		f.Expect(<-result).To(MatchError(nats.ErrConnectionClosed))
		f.Expect(time.Since(closed)).To(BeNumerically("<", time.Second))
		f.Expect(m.Lock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
		f.Expect(m.TryLock(context.Background())).To(MatchError(nats.ErrConnectionClosed))
	})
}
