package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// endedWatcher is a watcher that has ended.
type endedWatcher struct{ jetstream.KeyWatcher }

func (endedWatcher) Updates() <-chan jetstream.KeyValueEntry {
	ended := make(chan jetstream.KeyValueEntry)
	close(ended)
	return ended
}

func (endedWatcher) Stop() error { return nil }

func TestEndedWatcherIsRestartedSlowly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		var started atomic.Int64
		bucket.onWatch(func(func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
			started.Add(1)
			return endedWatcher{}, nil
		})
		a.start()
		after(10 * time.Second)
		f.Expect(started.Load()).To(BeNumerically("<=", 10))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestReconnectionKeepsTheBestSource(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3 * ttl)
		b.link.Disconnect()
		after(2 * ttl)
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		f.Expect(f.Stream().Consumers).To(BeZero())
	}, republished)
}

func TestRepeatedNotificationIsNoRenewal(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, left := range []time.Duration{100 * time.Millisecond, time.Second} { // until the key expires; there is time to read it once more, or not
		onVirtualTime(t, func(f *fleet) {
			a := f.connected("a", election.WithCampaignInterval(ttl/3)).start()
			after(interval)
			b := f.connected("b", election.WithCampaignInterval(ttl/3)).start()
			after(3 * ttl)
			f.awaitWrite()
			crashed := time.Now() // right after a renewal
			a.link.Cut()
			after(ttl - left)
			b.link.Disconnect()
			for b.State() == election.CandidateState {
				after(10 * time.Millisecond)
			}
			f.Expect(time.Since(crashed)).To(BeNumerically("<", ttl+400*time.Millisecond+ttl/3+100*time.Millisecond))
		}, withoutMarkers)
	}
}

func TestIncomparableBucketCanBeUsed(t *testing.T) {
	type outer struct{ jetstream.KeyValue }
	type hooked struct {
		jetstream.KeyValue
		hook func()
	}
	onVirtualTime(t, func(f *fleet) {
		c := f.candidateOn("a", nil, outer{hooked{KeyValue: f.Bucket, hook: func() {}}}).start()
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestElectionThatJoinsAStartingWatcherIsNotified(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		leader := f.election("leader", "second", f.Bucket)
		after(interval)
		f.Expect(leader.IsLeader()).To(BeTrue())

		bucket, start := &faulty{KeyValue: f.Bare(f.Server.Connect(f.T))}, make(chan struct{})
		bucket.onWatch(func(watch func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
			<-start
			return watch()
		})
		f.election("a", "first", bucket)
		b := f.election("b", "second", bucket)
		close(start)
		after(interval / 2)
		leader.Stop()
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestElectionsOfOneProcessShareOneWatcher(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var all []*election.Election
		for i := range 10 {
			all = append(all, f.election("a", fmt.Sprintf("key-%d", i), f.Bucket))
		}
		after(interval)
		f.Expect(f.Stream().Consumers).To(Equal(1))
		for _, e := range all {
			f.Expect(e.IsLeader()).To(BeTrue())
			f.Expect(e.Status().Notifications).To(Equal("watch"))
			f.Expect(e.Shutdown(context.Background())).To(Succeed())
		}
		after(time.Second)
		f.Expect(f.Stream().Consumers).To(BeZero())
	})
}

func TestRepublishedChangesNeedNoConsumer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		b := f.connected("b").start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		f.Expect(f.Stream().Consumers).To(BeZero())
	}, republished)
}

func TestLeaderReplacesASourceThatOmitsItsRenewals(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a")
		a.link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Notifications).To(Equal("republish"), "one lost notification may be chance")
		after(2 * interval)
		f.Expect(a.Status().Notifications).To(Equal("watch"))
		after(20 * interval)
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestStalledSourceIsReplaced(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.connected("b")
		b.link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		b.start()
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		after(5 * interval)
		f.Expect(b.Status().Notifications).To(Equal("watch"))
		after(5 * interval)
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestUnnotifiedCandidatePollsAndWarnsOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		f.leading("a").shutdown()
		f.Write("stranger")
		b := f.unnotified("b", election.WithLogger(log.logger())).start()
		f.Expect(b.Status().Notifications).To(Equal("none"))
		after(ttl + 400*time.Millisecond + 2*interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		after(10 * ttl)
		f.Expect(log.count(`level=WARN msg="Changes of the bucket cannot be received`)).To(Equal(1))
	})
}

func TestReconnectedCandidateIsNotified(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		b.link.Disconnect()
		after(time.Second)
		after(2 * ttl)
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestRenewalsAreDeliveredOnlyToProcessesThatUseTheirKey(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		const keys = 20
		leaders := f.Open(f.Server.Connect(f.T))
		for i := range keys {
			f.election("a", fmt.Sprint("key-", i), leaders)
		}
		after(2 * interval)
		nc := f.Server.Connect(f.T)
		followers := f.Open(nc)
		for i := range 2 {
			f.election("b", fmt.Sprint("key-", i), followers)
		}
		after(2 * interval)
		before := nc.Stats().InMsgs
		after(8 * interval)
		received := nc.Stats().InMsgs - before
		f.Expect(received).To(BeNumerically(">=", 2*8), "the renewals of two keys")
		f.Expect(received).To(BeNumerically("<", 2*8+keys), "and of no others")
	}, republished)
}

func TestCandidatesAreNotifiedWhateverSubjectsTheBucketRepublishesOn(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, r := range map[string]jetstream.RePublish{
		"below a prefix":                {Source: "$KV." + natstest.BucketName + ".>", Destination: "election.changes.>"},
		"whole subjects below a prefix": {Source: ">", Destination: "election.changes.>"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(2 * interval)
				b := f.connected("b").start()
				after(3 * ttl)
				f.Expect(b.Status().Notifications).To(Equal("republish"))
				a.shutdown()
				after(spread)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, func(cfg *jetstream.KeyValueConfig) {
				natstest.WithMarkers(cfg)
				cfg.RePublish = &r
			})
		})
	}
}

func TestSecondElectionOfAProcessIsNotifiedAndSoIsTheFirst(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"watch": natstest.WithMarkers, "republish": republished} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				process := func(name string, keys ...string) (all []*election.Election) {
					bucket := f.Open(f.Server.Connect(f.T))
					for _, key := range keys {
						all = append(all, f.election(name, key, bucket))
						after(instant) // so that the source is started for the first key alone
					}
					return all
				}
				leaders := process("a", "one", "two")
				after(interval)
				others := process("b", "one", "two")
				for i := range leaders {
					f.Expect(leaders[i].Transfer(context.Background(), "b")).To(Succeed())
					after(instant)
					f.Expect(others[i].IsLeader()).To(BeTrue())
				}
				after(time.Second)
				f.Expect(others[0].IsLeader() && others[1].IsLeader()).To(BeTrue())
			}, change)
		})
	}
}

func TestUnnotifiedCandidateIsNotifiedOnceASecondKeyCanBeWatched(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		bucket := &faulty{KeyValue: f.Bare(f.Server.Connect(f.T))}
		var asked atomic.Int64
		bucket.onWatch(func(func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) { // of a single key
			asked.Add(1)
			return nil, nats.ErrPermissionViolation
		})
		one := f.election("a", "one", bucket)
		after(5 * time.Second)
		f.Expect(one.Status().Notifications).To(Equal("none"))
		f.Expect(asked.Load()).To(BeEquivalentTo(2), "by the source, and by the read that showed nothing")
		two := f.election("a", "two", bucket)
		after(2 * time.Second)
		f.Expect(two.Status().Notifications).To(Equal("watch"))
		f.Expect(one.Status().Notifications).To(Equal("watch"))
	})
}

// unwatchable is a bucket that refuses all watchers, and counts them.
type unwatchable struct {
	jetstream.KeyValue
	asked atomic.Int64
}

func (b *unwatchable) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.asked.Add(1)
	return nil, nats.ErrPermissionViolation
}

func (b *unwatchable) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return b.Watch(ctx, ">", opts...)
}

func TestUnnotifiedElectionsThatComeAndGoAskForFewWatchers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		bucket := &unwatchable{KeyValue: f.Bare(f.Server.Connect(f.T))}
		f.election("a", "one", bucket)
		for range 60 {
			lock := f.election("a", "lock", bucket)
			after(time.Second)
			f.Expect(lock.Status().Notifications).To(Equal("none"))
			f.Expect(lock.Shutdown(context.Background())).To(Succeed())
		}
		f.Expect(bucket.asked.Load()).To(BeNumerically("<=", 8), "in a minute")
	})
}

func TestUnnotifiedCandidateIsNotifiedSoonAfterItsBucketWasMadeAgain(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.candidateOn("a", l, fleettest.Unwatchable{KeyValue: f.Bare(nc)}, election.WithJetStream(js)).start()
		after(interval + ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Notifications).To(Equal("none"))
		f.Changes = []func(*jetstream.KeyValueConfig){republished} // as CreateBucket makes it
		f.remake(ttl)
		for a.State() != election.LeaderElectState {
			after(10 * time.Millisecond)
		}
		after(2 * time.Second)
		f.Expect(a.Status().Notifications).To(Equal("republish"))
	})
}
