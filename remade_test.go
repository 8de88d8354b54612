package election_test

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
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestLeaderOfARemadeBucketNeverOverlapsItsSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		// The leader a holds revision 2, and is cut off while the bucket is deleted and made again.
		a := f.leading("a")
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		a.link.Stall()
		f.remake(ttl)
		b := f.candidate("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		after(time.Second)
		// The next renewal of a expects the very revision that the record of b has.
		a.link.Heal()
		for range 5_000 {
			after(time.Millisecond)
			f.Expect(a.seen()).To(Or(HaveLen(1), HaveLen(2)))
		}
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(HaveLen(2))
	})
}

func TestStandDownFollowsTheRemadeBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		f.Write("stranger")
		a := f.candidate("a").start() // which has read the TTL of 10 s
		after(time.Second)
		f.remake(6 * ttl)
		for a.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		won := time.Now()
		for !a.IsLeader() {
			after(time.Millisecond)
		}
		f.Expect(a.Status().TTL).To(Equal(6 * ttl))
		f.Expect(time.Since(won)).To(BeNumerically(">=", 6*interval-2*time.Millisecond))
	})
}

func TestReclaimedTermInARemadeBucketIsLater(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		for range 5 {
			f.Write("stranger")
		}
		after(5 * ttl)
		before, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		a.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) && !bytes.Contains(m.Payload, []byte(`"term"`)) { // it creates the key in the new bucket
				a.link.OnRequest(nil)
				a.link.LoseReplies(once(toKeyReply))
			}
		})
		f.remake(ttl)
		after(6 * ttl)
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Compare(before)).To(Equal(1), "before %s, now %s", before.Token(), now.Token())
	})
}

func TestReleaseOfAnEarlierBucketProvesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // with revision 2
		a.link.LoseRequests(func(faultproxy.Message) bool { return true })
		f.remake(ttl)
		b := f.candidate("b").start()
		c := f.candidate("c", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		after(interval + 500*time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		a.link.Heal()
		_ = a.Resign(context.Background()) // it writes a release over the record of b, which has the same revision
		for range 10_000 {
			after(time.Millisecond)
			f.Expect(b.IsLeader() && c.IsLeader()).To(BeFalse())
		}
	})
}

func TestCandidateWaitsForABucketThatIsGone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		loads := 0
		bucket.onStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			if loads++; loads == 2 {
				return nil, jetstream.ErrStreamNotFound
			}
			return status()
		})
		a.start()
		after(5 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTermInARemadeBucketIsLater(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.leading("a")
		for range 5 {
			f.Write("stranger") // the revision grows
		}
		after(5 * ttl)
		before, _ := c.Term()
		f.Expect(before.Number).To(BeNumerically(">", 1))

		f.remake(ttl)
		after(3 * ttl)
		now, leads := c.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Number).To(BeNumerically("<", before.Number))
		f.Expect(now.Compare(before)).To(Equal(1))
		f.Expect(now.Token() > before.Token()).To(BeTrue())
		f.Expect(before.Valid()).To(BeFalse())
	})
}

func TestOldReleaseIsReadAgainBeforeItIsTaken(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		f.Expect(a.Resign(context.Background())).To(Succeed()) // a holds back
		release := f.revision()
		f.Changes = []func(*jetstream.KeyValueConfig){natstest.WithMarkers} // without republished changes
		f.remake(ttl)
		b := f.candidate("b", election.WithStandDown(0), election.WithCampaignInterval(time.Second)).start()
		for f.revision() < release {
			after(10 * time.Millisecond)
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		b.link.Cut() // while the key has the very revision of the release
		for b.IsLeader() {
			f.Expect(a.IsLeader()).To(BeFalse())
			after(10 * time.Millisecond)
		}
	}, republished)
}

func TestCandidateLeavesNoKeyInABucketWithoutATTL(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.leading("a", election.WithLogger(log.logger()))
		f.Changes = []func(*jetstream.KeyValueConfig){func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 }}
		f.remake(ttl)
		after(5 * ttl)
		f.Expect(f.record()).To(BeEmpty())
		f.Expect(a.Status().LastError).To(ContainSubstring("has no TTL"))
		f.Expect(log.count(`level=WARN msg="Bucket is not fit for elections any more`)).To(Equal(1))
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge, cfg.Duplicates = ttl, ttl })
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestFollowerOfARemadeBucketIsQuietAndNotified(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		leader, follower := candidate("a").start(), candidate("b")
		after(interval)
		follower.start()
		after(5 * interval)
		f.remake(ttl)
		after(6 * ttl)
		if follower.IsLeader() {
			leader, follower = follower, leader
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		var requests atomic.Int64
		follower.link.OnRequest(func(m faultproxy.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		after(30 * ttl)
		f.Expect(requests.Load()).To(BeNumerically("<=", 12), "a few campaigns")
		leader.shutdown()
		after(spread)
		f.Expect(follower.IsLeader()).To(BeTrue())
	})
}

// A leader with the library's default renews after 0.75 of the TTL. A candidate of connect or the command that has just started knows nothing of it
// where the bucket was made again, and must not lead before that renewal.
func TestMixedIntervalsInABucketThatWasMadeAgainNeverMakeTwoLeaders(t *testing.T) {
	for name, opts := range map[string][]election.Option{"both renew alike": nil, "the new one renews after a quarter": {settings.ShortInterval}} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.unnotified("a").start()
				after(2*interval + time.Millisecond)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.remake(ttl)
				b := f.connected("b", opts...).start()
				var overlap time.Duration
				for range 3 * ttl / (5 * time.Millisecond) {
					after(5 * time.Millisecond)
					if a.IsLeader() && b.IsLeader() {
						overlap += 5 * time.Millisecond
					}
				}
				f.Expect(overlap).To(BeZero())
			}, republished)
		})
	}
}
