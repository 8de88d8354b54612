package standdown_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestLeaderOfARemadeBucketNeverOverlapsItsSuccessor(t *testing.T) {
	Run(t, func(f *Fleet) {
		// The leader a holds revision 2, and is cut off while the bucket is deleted and made again.
		a := f.Leading("a")
		f.Expect(f.Revision()).To(BeEquivalentTo(2))
		a.Link.Stall()
		f.Remake(TTL)
		b := f.Candidate("b").Begin()
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.Revision()).To(BeEquivalentTo(2))
		After(time.Second)
		// The next renewal of a expects the very revision that the record of b has.
		a.Link.Heal()
		for range 5_000 {
			After(time.Millisecond)
			f.Expect(a.Seen()).To(Or(HaveLen(1), HaveLen(2)))
		}
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.Seen()).To(HaveLen(2))
	})
}

func TestStandDownFollowsTheRemadeBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		f.Write("stranger")
		a := f.Candidate("a").Begin() // which has read the TTL of 10 s
		After(time.Second)
		f.Remake(6 * TTL)
		for a.State() != election.LeaderElectState {
			After(time.Millisecond)
		}
		won := time.Now()
		for !a.IsLeader() {
			After(time.Millisecond)
		}
		f.Expect(a.Status().TTL).To(Equal(6 * TTL))
		f.Expect(time.Since(won)).To(BeNumerically(">=", 6*Interval-2*time.Millisecond))
	})
}

func TestReclaimedTermInARemadeBucketIsLater(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		for range 5 {
			f.Write("stranger")
		}
		After(5 * TTL)
		before, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		a.Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) && !bytes.Contains(m.Payload, []byte(`"term"`)) { // it creates the key in the new bucket
				a.Link.OnRequest(nil)
				a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
			}
		})
		f.Remake(TTL)
		After(6 * TTL)
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Compare(before)).To(Equal(1), "before %s, now %s", before.Token(), now.Token())
	})
}

func TestReleaseOfAnEarlierBucketProvesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Leading("a") // with revision 2
		a.Link.LoseRequests(func(faultproxy.Message) bool { return true })
		f.Remake(TTL)
		b := f.Candidate("b").Begin()
		c := f.Candidate("c", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
		After(Interval + 500*time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		a.Link.Heal()
		_ = a.Resign(context.Background()) // it writes a release over the record of b, which has the same revision
		for range 10_000 {
			After(time.Millisecond)
			f.Expect(b.IsLeader() && c.IsLeader()).To(BeFalse())
		}
	})
}

func TestCandidateWaitsForABucketThatIsGone(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		loads := 0
		bucket.OnStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			if loads++; loads == 2 {
				return nil, jetstream.ErrStreamNotFound
			}
			return status()
		})
		a.Begin()
		After(5 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTermInARemadeBucketIsLater(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Leading("a")
		for range 5 {
			f.Write("stranger") // the revision grows
		}
		After(5 * TTL)
		before, _ := c.Term()
		f.Expect(before.Number).To(BeNumerically(">", 1))

		f.Remake(TTL)
		After(3 * TTL)
		now, leads := c.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Number).To(BeNumerically("<", before.Number))
		f.Expect(now.Compare(before)).To(Equal(1))
		f.Expect(now.Token() > before.Token()).To(BeTrue())
		f.Expect(before.Valid()).To(BeFalse())
	})
}

func TestOldReleaseIsReadAgainBeforeItIsTaken(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		f.Expect(a.Resign(context.Background())).To(Succeed()) // a holds back
		release := f.Revision()
		f.Changes = []func(*jetstream.KeyValueConfig){natstest.WithMarkers} // without republished changes
		f.Remake(TTL)
		b := f.Candidate("b", election.WithStandDown(0), election.WithCampaignInterval(time.Second)).Begin()
		for f.Revision() < release {
			After(10 * time.Millisecond)
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		b.Link.Cut() // while the key has the very revision of the release
		for b.IsLeader() {
			f.Expect(a.IsLeader()).To(BeFalse())
			After(10 * time.Millisecond)
		}
	}, Republished)
}

func TestCandidateLeavesNoKeyInABucketWithoutATTL(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		a := f.Leading("a", election.WithLogger(log.Logger()))
		f.Changes = []func(*jetstream.KeyValueConfig){func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 }}
		f.Remake(TTL)
		After(5 * TTL)
		f.Expect(f.Record()).To(BeEmpty())
		f.Expect(a.Status().LastError).To(ContainSubstring("has no TTL"))
		f.Expect(log.Count(`level=WARN msg="Bucket is not fit for elections any more`)).To(Equal(1))
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge, cfg.Duplicates = TTL, TTL })
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestFollowerOfARemadeBucketIsQuietAndNotified(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		leader, follower := candidate("a").Begin(), candidate("b")
		After(Interval)
		follower.Begin()
		After(5 * Interval)
		f.Remake(TTL)
		After(6 * TTL)
		if follower.IsLeader() {
			leader, follower = follower, leader
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		var requests atomic.Int64
		follower.Link.OnRequest(func(m faultproxy.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		After(30 * TTL)
		f.Expect(requests.Load()).To(BeNumerically("<=", 12), "a few campaigns")
		leader.End()
		After(Spread)
		f.Expect(follower.IsLeader()).To(BeTrue())
	})
}

// A leader with the library's default renews after 0.75 of the TTL. A candidate of connect or the command that has just started knows nothing of it
// where the bucket was made again, and must not lead before that renewal.
func TestMixedIntervalsInABucketThatWasMadeAgainNeverMakeTwoLeaders(t *testing.T) {
	for name, opts := range map[string][]election.Option{"both renew alike": nil, "the new one renews after a quarter": {settings.ShortInterval}} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Unnotified("a").Begin()
				After(2*Interval + time.Millisecond)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Remake(TTL)
				b := f.Connected("b", opts...).Begin()
				var overlap time.Duration
				for range 3 * TTL / (5 * time.Millisecond) {
					After(5 * time.Millisecond)
					if a.IsLeader() && b.IsLeader() {
						overlap += 5 * time.Millisecond
					}
				}
				f.Expect(overlap).To(BeZero())
			}, Republished)
		})
	}
}
