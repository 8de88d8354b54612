package election_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	// spread is the time over which candidates spread their answers to a release that names no successor, and some more.
	spread = 50 * time.Millisecond
	// expirySpread is the same for their answers to all other vacancies.
	expirySpread = ttl/16 + 5*time.Millisecond
)

func TestFailedAttemptIsRepeatedSoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(3*interval + time.Second)
		bucket.failOnce()
		a.shutdown()
		after(200 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestStaleReadIsRepeated(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(3*interval + time.Second)
		before, err := f.Bucket.Get(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		caughtUp := time.Now().Add(150 * time.Millisecond)
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if time.Now().Before(caughtUp) {
				return before, nil
			}
			return get()
		})
		a.shutdown()
		after(300 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// A replica has a release a moment after the one that announces it.
func TestSuccessorThatReadsALaggingReplicaReadsAgainAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(3 * interval)
		held, err := f.Bucket.Get(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		reads, lag := 0, time.Now().Add(2*time.Millisecond)
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if reads++; time.Now().Before(lag) {
				return held, nil
			}
			return get()
		})
		a.shutdown()
		after(5 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(reads).To(Equal(2))
	}, republished)
}

// A read that fails does not prove its notification wrong. The simulator found a follower that stopped reading for a TTL.
func TestFailedReadsDoNotDelayTheAnswerToARelease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(2 * interval)
		reads := 0
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			reads++
			return nil, nats.ErrNoResponders
		})
		for i := range 5 {
			f.Expect(a.SetMetadata(map[string]string{"i": strconv.Itoa(i)})).To(Succeed())
			after(time.Second)
		}
		f.Expect(reads).To(And(BeNumerically(">=", 3), BeNumerically("<=", 7)))
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return get()
		})
		after(ttl / 4)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReleaseIsAnsweredAtOnce(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * ttl)
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryIsAnsweredAtOnceAfterAStandDown(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a", election.WithPlainValue()).start() // whose record does not say how long its lease is
		after(interval)
		b := candidate("b").start()
		after(3*interval + time.Second)
		a.link.Cut() // one second after a renewal
		after(ttl - time.Second - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		for b.State() == election.CandidateState {
			after(time.Millisecond)
		}
		elected := time.Now()
		f.Expect(elected).To(BeTemporally("<", b.begun.Add(3*interval+ttl+expirySpread)))
		after(interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryWithoutMarkersIsNoticedAfterOneTTL(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithPlainValue())
		b := f.candidate("b").start()
		after(3*interval + time.Second)
		a.link.Cut()
		after(ttl - time.Second + 400*time.Millisecond + expirySpread)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
	}, withoutMarkers)
}

func TestNotifiedFollowerSendsOnlyFallbackCampaigns(t *testing.T) {
	natstest.SkipIfShort(t)
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		var requests atomic.Int64
		b.link.OnRequest(func(m faultproxy.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		after(32 * ttl)
		f.Expect(requests.Load()).To(BeZero())
		after(96 * ttl)
		f.Expect(requests.Load()).To(And(BeNumerically(">", 0), BeNumerically("<=", 12)), "a few campaigns")
	})
}

func TestLeaderDoesNotReadItsOwnWrites(t *testing.T) {
	natstest.SkipIfShort(t)
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		var reads atomic.Int64
		b.link.OnRequest(func(m faultproxy.Message) {
			if strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") {
				reads.Add(1)
			}
		})
		b.link.DelayReplies(2 * time.Millisecond)
		a.shutdown()
		after(3 * interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		for i := range 5 {
			f.Expect(b.SetMetadata(map[string]string{"n": fmt.Sprint(i)})).To(Succeed())
			after(time.Second)
		}
		f.Expect(reads.Load()).To(BeEquivalentTo(1), "before it won")
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
	})
}
