package election_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// What follows is about what a candidate knows before its first campaign.

// cutOff returns a leader that was cut off right after a renewal, so that it believes for the whole of its lease.
func (f *fleet) cutOff(candidate func(string, ...election.Option) *candidate) *candidate {
	f.Helper()
	a := candidate("a").start()
	after(interval)
	for before := f.revision(); f.revision() == before; {
		after(time.Millisecond)
	}
	f.Expect(a.IsLeader()).To(BeTrue())
	a.link.Cut()
	return a
}

func TestNewcomerKnowsThatTheKeyWasRemoved(t *testing.T) {
	for name, remove := range map[string]func(f *fleet) error{
		"deleted": func(f *fleet) error { return f.bucket.Delete(context.Background(), key) },
		"purged":  func(f *fleet) error { return f.bucket.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				a := f.cutOff(candidate)
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

func TestWinnerKnowsThatTheKeyWasRemovedWhileItsCampaignWasUnderWay(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := f.cutOff(candidate)
		b := candidate("b", election.WithStandDown(0))
		removal := sync.OnceFunc(func() { _ = f.bucket.Delete(context.Background(), key) })
		b.link.OnRequest(func(m link.Message) {
			if toKey(m) {
				removal()
			}
		})
		b.link.DelayReplies(time.Millisecond) // what happened first is heard first
		b.start()
		after(ttl - instant)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(a.IsLeader()).To(BeFalse())
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestNewcomerFarAwayKnowsThatTheKeyWasDeleted(t *testing.T) {
	for _, rtt := range []time.Duration{20, 40, 60, 90, 200} {
		t.Run(fmt.Sprint(rtt), func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				a := f.cutOff(candidate)
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
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

func TestNewcomerWhereOthersListenAlreadyKnowsThatTheKeyWasDeleted(t *testing.T) {
	for n := range 4 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				l := f.server.Link(f.T)
				bucket := f.server.Bucket(f.T, natstest.Connect(f.T, l), ttl, f.options...)
				for i := range n {
					e, err := election.NewElection("other", fmt.Sprintf("other-%d", i), bucket, election.WithSplay(0))
					f.Expect(err).NotTo(HaveOccurred())
					go func() { _ = e.Start(context.Background()) }()
					f.T.Cleanup(e.Stop)
				}
				after(ttl)
				a := f.cutOff(f.candidate)
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
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

func TestNewcomerAfterAnExpiryNeedNotWaitLonger(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.write("gone")
		after(ttl + time.Second) // expired, and its marker stands
		b := f.hearing("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestPollerForgetsTheDeletionThatItReadAtItsStart(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.write("x")
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		l := f.server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: f.server.Bucket(f.T, nc, ttl, f.options...), deaf: true}
		b := f.candidateOn("b", l, bucket, election.WithJetStream(js), election.WithStandDown(time.Second))
		var lose atomic.Bool
		lose.Store(true)
		l.LoseRequests(func(m link.Message) bool { return lose.Load() && toKey(m) })
		b.start()
		after(time.Millisecond)
		a := f.candidate("a").start()
		after(ttl + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		lose.Store(false)
		f.Expect(b.Status().WakeUp).To(Equal("none"))
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
