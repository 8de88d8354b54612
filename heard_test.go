package election_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// What follows is about what was heard that is wrong, late, missing, or of somebody else's.

func TestRecordOfABucketOfTheSameNameElsewhereIsNotHeard(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(3*interval + time.Second)
		var renewals atomic.Int64
		a.link.OnRequest(func(link.Message) { renewals.Add(1) })
		nc := f.server.Connect(f.T)
		elsewhere := func(created time.Time) {
			m := nats.NewMsg("election." + natstest.BucketName + "." + key)
			m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+key)
			m.Header.Set("Nats-Sequence", "1000000")
			m.Data = fmt.Appendf(nil, `{"name":"x","instance":"x","attempt":"x.1","bucket":%q}`, created.Format(time.RFC3339Nano))
			f.Expect(nc.PublishMsg(m)).To(Succeed())
		}
		for range 300 {
			elsewhere(time.Now().Add(-time.Hour * 24 * 365))
			elsewhere(time.Now())
			after(100 * time.Millisecond)
		}
		f.Expect(renewals.Load()).To(BeNumerically("<=", 5+2*30), "four or five are due, and a look at the bucket now and then")
		a.link.Cut()
		crashed := time.Now()
		for !b.IsLeader() {
			elsewhere(time.Now())
			after(100 * time.Millisecond)
		}
		f.Expect(time.Since(crashed)).To(BeNumerically("<=", ttl+time.Second+interval+interval))
	}, republished)
}

func TestWatcherThatEndsIsNotMadeAgainAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := &endingWatcher{KeyValue: f.bucket}
		c := f.candidateOn("a", nil, b).start()
		after(10 * time.Second)
		f.Expect(b.made.Load()).To(BeNumerically("<=", 10))
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

// endingWatcher is a bucket whose watchers end at once.
type endingWatcher struct {
	jetstream.KeyValue
	made atomic.Int64
}

func (b *endingWatcher) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.made.Add(1)
	w := endedWatcher{updates: make(chan jetstream.KeyValueEntry)}
	close(w.updates)
	return w, nil
}

type endedWatcher struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
}

func (w endedWatcher) Updates() <-chan jetstream.KeyValueEntry { return w.updates }
func (w endedWatcher) Stop() error                             { return nil }

// failsOnce makes the next update of the bucket fail without a trace.
func failsOnce(bucket *faulty) {
	var failed atomic.Bool
	bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
		if failed.CompareAndSwap(false, true) {
			return 0, jetstream.ErrNoStreamResponse
		}
		return update()
	})
}

func TestDeletionThatWasHeardIsRememberedWhenTheAnswerFails(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b", election.WithStandDown(ttl/10), election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		b.start()
		after(3*interval + time.Second)
		failsOnce(bucket)
		a.link.Cut()
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		for !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestAnswerThatFailedIsMadeAgainSoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(3*interval + time.Second)
		failsOnce(bucket)
		a.Stop()
		after(200 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReleaseThatWasHeardLongAgoIsLookedAtAgain(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		f.Expect(a.Resign(context.Background())).To(Succeed()) // and holds back
		release := f.revision()
		f.options = []func(*jetstream.KeyValueConfig){natstest.WithMarkers} // not republished
		f.remake()
		b := f.candidate("b", election.WithStandDown(0), election.WithCampaignInterval(time.Second)).start()
		for f.revision() < release {
			after(10 * time.Millisecond)
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		b.link.Cut() // at the very revision of the release
		for b.IsLeader() {
			f.Expect(a.IsLeader()).To(BeFalse())
			after(10 * time.Millisecond)
		}
	}, republished)
}

func TestDeletionAfterAWinThatWasMissedIsADeletion(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.hearing("b", election.WithStandDown(time.Second))
		f.write("old")
		b.start()
		after(ttl - time.Second)
		var lose atomic.Bool
		lose.Store(true)
		b.link.LoseRequests(func(m link.Message) bool { return lose.Load() && toKey(m) })
		after(2 * time.Second) // expired, heard, not answered
		b.link.LoseReplies(func(m link.Message) bool { return lose.Load() && strings.HasPrefix(m.Subject, "election.") })
		a := f.hearing("a", election.WithStandDown(0)).start() // its win is not heard
		after(100 * time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		lose.Store(false)
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		for a.IsLeader() && !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}, republished)
}

// crowd starts candidates over a network that takes some time, and counts what they publish to the key other than renewals.
func (f *fleet) crowd(n int, candidate func(string, ...election.Option) *candidate) (all []*candidate, attempts *atomic.Int64) {
	attempts = new(atomic.Int64)
	for i := range n {
		c := candidate(fmt.Sprintf("crowd-%d", i), election.WithSplay(5*time.Second)).start()
		c.link.DelayReplies(2 * time.Millisecond)
		c.link.OnRequest(func(m link.Message) {
			if toKey(m) && !strings.Contains(string(m.Payload), `"term"`) {
				attempts.Add(1)
			}
		})
		all = append(all, c)
	}
	return all, attempts
}

func TestCrashWithoutMarkersIsAnsweredByFewOfMany(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		_, attempts := f.crowd(100, f.candidate)
		after(4*interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		after(ttl - time.Second)
		attempts.Store(0)
		after(500 * time.Millisecond)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, withoutMarkers)
}

func TestLeaderThatFollowsOneWhoDidNotCountDoesNotThinkItIsAlone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // without its JetStream context
		all, attempts := f.crowd(100, f.hearing)
		after(5 * interval)
		a.Stop()
		after(3 * interval)
		attempts.Store(0)
		for _, c := range all {
			if c.IsLeader() {
				c.Stop()
			}
		}
		after(100 * time.Millisecond)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 30))
	}, republished)
}

func TestReconnectKeepsTheBestSource(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(3 * ttl)
		b.link.Disconnect()
		after(2 * ttl)
		f.Expect(b.Status().WakeUp).To(Equal("republish"))
		f.Expect(f.consumers()).To(BeZero())
	}, republished)
}

func TestStateThatIsToldAgainIsNoRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a", election.WithCampaignInterval(ttl/3)).start()
		after(interval)
		b := f.hearing("b", election.WithCampaignInterval(ttl/3)).start()
		after(3 * ttl)
		for before := f.revision(); f.revision() == before; {
			after(10 * time.Millisecond)
		}
		crashed := time.Now() // right after a renewal
		a.link.Cut()
		after(ttl - 100*time.Millisecond)
		b.link.Disconnect()
		for b.State() == election.CandidateState {
			after(10 * time.Millisecond)
		}
		f.Expect(time.Since(crashed)).To(BeNumerically("<", ttl+400*time.Millisecond+ttl/3+100*time.Millisecond))
	}, withoutMarkers)
}

func TestBucketThatCannotBeComparedCanBeUsed(t *testing.T) {
	type outer struct{ jetstream.KeyValue }
	type hooked struct {
		jetstream.KeyValue
		hook func()
	}
	onVirtualTime(t, func(f *fleet) {
		c := f.candidateOn("a", nil, outer{hooked{KeyValue: f.bucket, hook: func() {}}}).start()
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestResignedCandidateTakesWhatItsSuccessorReleases(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		after(200 * time.Millisecond)
		b.Stop()
		after(spread)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestReconnectOfManyElectionsIsNoBurst(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		const n = 200
		start := func(name string, nc *nats.Conn) {
			js, err := jetstream.New(nc)
			f.Expect(err).NotTo(HaveOccurred())
			bucket := f.server.Bucket(f.T, nc, ttl, f.options...)
			for i := range n {
				e, err := election.NewElection(name, fmt.Sprintf("k%d", i), bucket, election.WithJetStream(js))
				f.Expect(err).NotTo(HaveOccurred())
				go func() { _ = e.Start(context.Background()) }()
				f.T.Cleanup(e.Stop)
			}
		}
		start("a", f.server.Connect(f.T))
		after(2 * interval)
		l := f.server.Link(f.T)
		start("b", natstest.Connect(f.T, l))
		after(5 * ttl)
		var requests atomic.Int64
		l.OnRequest(func(link.Message) { requests.Add(1) })
		l.Disconnect()
		after(100 * time.Millisecond)
		f.Expect(requests.Load()).To(BeNumerically("<", n))
	}, republished)
}

func TestTracesOfShortLivedCandidatesDoNotSlowAHandover(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(2 * interval)
		for i := range 500 { // one lost campaign each
			_, err := f.bucket.Update(context.Background(), key, fmt.Appendf(nil, `{"name":"cron","instance":"i%d","attempt":"i%d.1"}`, i, i), 1<<40)
			f.Expect(err).To(HaveOccurred())
		}
		after(5 * interval)
		a.Stop()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestStatusOfAFollowerTellsTheLeaderThatItHears(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		c := candidate("c").start()
		after(3 * interval)
		a.Stop()
		after(ttl)
		leader, other := b, c
		if c.IsLeader() {
			leader, other = c, b
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		f.Expect(other.Status().Leader.Name).To(Equal(leader.Status().Name))
	})
}

func TestRefusedWritesOfAnySizeDoNotFillTheMemoryOfTheLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		nc := f.server.Connect(f.T) // without a link, which has buffers of its own
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		leader := f.candidateOn("a", nil, f.server.Bucket(f.T, nc, ttl, f.options...), election.WithJetStream(js)).start()
		after(interval)
		large := strings.Repeat("x", 900_000)
		live := func() int64 {
			after(instant)
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		attempts := func(n int) {
			for i := range n {
				for _, record := range []string{
					`{"name":"` + large + `","instance":"i%d","attempt":"i.1","hears":true}`,
					`{"name":"x","instance":"` + large + `%d","attempt":"i.1","hears":true}`,
					`{"name":"` + large[:80_000] + `","instance":"j%d","attempt":"i.1","hears":true}`,
				} {
					_, err := f.bucket.Create(context.Background(), key, fmt.Appendf(nil, record, i))
					f.Expect(err).To(MatchError(jetstream.ErrKeyExists))
				}
			}
		}
		attempts(10) // of which buffers grow that stay
		before := live()
		attempts(100)
		f.Expect(live() - before).To(BeNumerically("<", 3<<20))
		f.Expect(leader.IsLeader()).To(BeTrue())
	}, republished)
}
