package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/fleettest"
	"github.com/natscampaign/election/internal/natstest"
)

// cutOffLeader returns a leader that was cut off right after a renewal, and considers itself leader for a whole lease.
func (f *fleet) cutOffLeader(candidate newCandidate) *candidate {
	f.Helper()
	a := candidate("a").start()
	after(interval) // the renewal at the end of the stand-down
	f.Expect(a.IsLeader()).To(BeTrue())
	a.link.Cut()
	return a
}

func TestDeletionIsRememberedAfterAFailedAttempt(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b", election.WithStandDown(ttl/10), election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		b.start()
		after(3*interval + time.Second)
		bucket.failOnce()
		a.link.Cut()
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		for !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestDeletionAfterAMissedWinIsADeletion(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		b := f.connected("b", election.WithStandDown(time.Second))
		f.Write("old")
		b.start()
		after(ttl - time.Second)
		var lose atomic.Bool
		lose.Store(true)
		b.link.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && toKey(m) })
		after(2 * time.Second) // the key expires, b is notified, and its answer is lost
		b.link.LoseReplies(func(m faultproxy.Message) bool { return lose.Load() && strings.HasPrefix(m.Subject, "election.") })
		a := f.connected("a", election.WithStandDown(0)).start() // b is not notified of this win
		after(100 * time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		lose.Store(false)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		for a.IsLeader() && !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}, republished)
}

func TestDeletedOrPurgedKeyIsNoRelease(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.Write("stranger")
				f.Expect(remove(f.Bucket)).To(Succeed())
				c := f.candidate("a").start()
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
				after(interval - instant)
				f.Expect(c.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestDeletedKeyNeverMakesTwoLeaders(t *testing.T) {
	for _, at := range []time.Duration{0, time.Millisecond, interval / 2, interval - time.Millisecond} {
		t.Run(at.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.leading("a")
				b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
				after(at)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				for !b.IsLeader() {
					after(time.Millisecond)
					f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
				}
			})
		})
	}
}

func TestNewCandidateOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(f *fleet) error{
		"deleted": func(f *fleet) error { return f.Bucket.Delete(context.Background(), key) },
		"purged":  func(f *fleet) error { return f.Bucket.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := f.cutOffLeader(candidate)
				f.Expect(remove(f)).To(Succeed())
				b := candidate("b", election.WithStandDown(0)).start()
				after(ttl - instant)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				f.Expect(a.IsLeader()).To(BeFalse())
				after(instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestWinnerOfAKeyRemovedDuringItsCampaignWaitsOneTTL(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := f.cutOffLeader(candidate)
		b := candidate("b", election.WithStandDown(0))
		removal := sync.OnceFunc(func() { _ = f.Bucket.Delete(context.Background(), key) })
		b.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) {
				removal()
			}
		})
		b.link.DelayReplies(time.Millisecond) // so that the notification of the removal comes before the answer
		b.start()
		after(ttl - instant)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(a.IsLeader()).To(BeFalse())
		after(expirySpread + 10*time.Millisecond) // over which it answered the removal, by requests that take a millisecond each
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDistantNewCandidateOfADeletedKeyWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, rtt := range []time.Duration{20, 40, 60, 90, 200} {
		t.Run(fmt.Sprint(rtt), func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := f.cutOffLeader(candidate)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				b := candidate("b", election.WithStandDown(0))
				b.link.DelayReplies(rtt * time.Millisecond)
				b.start()
				for !b.IsLeader() {
					after(10 * time.Millisecond)
				}
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestNewCandidateBesideOtherElectionsWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for n := range unlessShort(4, 2) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				l := f.Server.Link(f.T)
				bucket := f.Bare(natstest.Connect(f.T, l))
				for i := range n {
					f.election("c", fmt.Sprintf("other-%d", i), bucket)
				}
				after(ttl)
				a := f.cutOffLeader(f.candidate)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				b := f.candidateOn("b", l, bucket, election.WithStandDown(0)).start()
				after(ttl - margin - 20*time.Millisecond)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(b.IsLeader()).To(BeFalse())
				after(ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestNewCandidateAfterAnExpiryWaitsForItsStandDownOnly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Write("stranger")
		after(ttl + time.Second) // the key has expired, and its marker is stored
		b := f.connected("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestUnnotifiedCandidateForgetsAnOldDeletion(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Write("x")
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: fleettest.Unwatchable{KeyValue: f.Bare(nc)}}
		b := f.candidateOn("b", l, bucket, election.WithJetStream(js), election.WithStandDown(time.Second))
		var lose atomic.Bool
		lose.Store(true)
		l.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && toKey(m) })
		b.start()
		after(time.Millisecond)
		a := f.candidate("a").start()
		after(ttl + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		lose.Store(false)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		a.link.Cut()
		for b.State() == election.CandidateState {
			after(10 * time.Millisecond)
		}
		elected := time.Now()
		for !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(time.Since(elected)).To(BeNumerically("<=", time.Second+20*time.Millisecond))
	})
}

func TestWinnerOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(3*interval + time.Second)
				a.link.Cut() // it considers itself leader
				f.Expect(remove(f.Bucket)).To(Succeed())
				after(expirySpread)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				after(ttl - expirySpread - instant)
				f.Expect(b.IsLeader()).To(BeFalse())
				after(expirySpread + instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}
