package quiet_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestFailedAttemptIsRepeatedSoon(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b, bucket := f.FaultyCandidate("b")
		b.Begin()
		After(3*Interval + time.Second)
		bucket.FailOnce()
		a.End()
		After(200 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestStaleReadIsRepeated(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b, bucket := f.FaultyCandidate("b")
		b.Begin()
		After(3*Interval + time.Second)
		before, err := f.Bucket.Get(context.Background(), Key)
		f.Expect(err).NotTo(HaveOccurred())
		caughtUp := time.Now().Add(150 * time.Millisecond)
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if time.Now().Before(caughtUp) {
				return before, nil
			}
			return get()
		})
		a.End()
		After(300 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// A replica has a release a moment after the one that announces it.
func TestSuccessorThatReadsALaggingReplicaReadsAgainAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b, bucket := f.FaultyCandidate("b")
		b.Begin()
		After(3 * Interval)
		held, err := f.Bucket.Get(context.Background(), Key)
		f.Expect(err).NotTo(HaveOccurred())
		reads, lag := 0, time.Now().Add(2*time.Millisecond)
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if reads++; time.Now().Before(lag) {
				return held, nil
			}
			return get()
		})
		a.End()
		After(5 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(reads).To(Equal(2))
	}, Republished)
}

// A read that fails does not prove its notification wrong. The simulator found a follower that stopped reading for a TTL.
func TestFailedReadsDoNotDelayTheAnswerToARelease(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b, bucket := f.FaultyCandidate("b")
		b.Begin()
		After(2 * Interval)
		reads := 0
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			reads++
			return nil, nats.ErrNoResponders
		})
		for i := range 5 {
			f.Expect(a.SetMetadata(map[string]string{"i": strconv.Itoa(i)})).To(Succeed())
			After(time.Second)
		}
		f.Expect(reads).To(And(BeNumerically(">=", 3), BeNumerically("<=", 7)))
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return get()
		})
		After(TTL / 4)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReleaseIsAnsweredAtOnce(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(3 * TTL)
		a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryIsAnsweredAtOnceAfterAStandDown(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a", election.WithPlainValue()).Begin() // whose record does not say how long its lease is
		After(Interval)
		b := candidate("b").Begin()
		After(3*Interval + time.Second)
		a.Link.Cut() // one second after a renewal
		After(TTL - time.Second - Instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		for b.State() == election.CandidateState {
			After(time.Millisecond)
		}
		elected := time.Now()
		f.Expect(elected).To(BeTemporally("<", b.Begun.Add(3*Interval+TTL+ExpirySpread)))
		After(Interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		After(time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestExpiryWithoutMarkersIsNoticedAfterOneTTL(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithPlainValue())
		b := f.Candidate("b").Begin()
		After(3*Interval + time.Second)
		a.Link.Cut()
		After(TTL - time.Second + 400*time.Millisecond + ExpirySpread)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
	}, WithoutMarkers)
}

func TestNotifiedFollowerSendsOnlyFallbackCampaigns(t *testing.T) {
	natstest.SkipIfShort(t)
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(3 * Interval)
		var requests atomic.Int64
		b.Link.OnRequest(func(m faultproxy.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		After(32 * TTL)
		f.Expect(requests.Load()).To(BeZero())
		After(96 * TTL)
		f.Expect(requests.Load()).To(And(BeNumerically(">", 0), BeNumerically("<=", 12)), "a few campaigns")
	})
}

func TestLeaderDoesNotReadItsOwnWrites(t *testing.T) {
	natstest.SkipIfShort(t)
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a, b := f.LeaderAndFollower(candidate)
		var reads atomic.Int64
		b.Link.OnRequest(func(m faultproxy.Message) {
			if strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") {
				reads.Add(1)
			}
		})
		b.Link.DelayReplies(2 * time.Millisecond)
		a.End()
		After(3 * Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		for i := range 5 {
			f.Expect(b.SetMetadata(map[string]string{"n": fmt.Sprint(i)})).To(Succeed())
			After(time.Second)
		}
		f.Expect(reads.Load()).To(BeEquivalentTo(1), "before it won")
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
	})
}
