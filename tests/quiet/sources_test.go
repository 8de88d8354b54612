package quiet_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
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
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		var started atomic.Int64
		bucket.OnWatch(func(func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
			started.Add(1)
			return endedWatcher{}, nil
		})
		a.Begin()
		After(10 * time.Second)
		f.Expect(started.Load()).To(BeNumerically("<=", 10))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestReconnectionKeepsTheBestSource(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b").Begin()
		After(3 * TTL)
		b.Link.Disconnect()
		After(2 * TTL)
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		f.Expect(f.Stream().Consumers).To(BeZero())
	}, Republished)
}

func TestRepeatedNotificationIsNoRenewal(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, left := range []time.Duration{100 * time.Millisecond, time.Second} { // until the key expires; there is time to read it once more, or not
		Run(t, func(f *Fleet) {
			a := f.Connected("a", election.WithCampaignInterval(TTL/3)).Begin()
			After(Interval)
			b := f.Connected("b", election.WithCampaignInterval(TTL/3)).Begin()
			After(3 * TTL)
			f.AwaitWrite()
			crashed := time.Now() // right after a renewal
			a.Link.Cut()
			After(TTL - left)
			b.Link.Disconnect()
			for b.State() == election.CandidateState {
				After(10 * time.Millisecond)
			}
			f.Expect(time.Since(crashed)).To(BeNumerically("<", TTL+400*time.Millisecond+TTL/3+100*time.Millisecond))
		}, WithoutMarkers)
	}
}

func TestIncomparableBucketCanBeUsed(t *testing.T) {
	type outer struct{ jetstream.KeyValue }
	type hooked struct {
		jetstream.KeyValue
		hook func()
	}
	Run(t, func(f *Fleet) {
		c := f.CandidateOn("a", nil, outer{hooked{KeyValue: f.Bucket, hook: func() {}}}).Begin()
		After(Interval)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestElectionThatJoinsAStartingWatcherIsNotified(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		leader := f.Election("leader", "second", f.Bucket)
		After(Interval)
		f.Expect(leader.IsLeader()).To(BeTrue())

		bucket, start := &Faulty{KeyValue: f.Bare(f.Server.Connect(f.T))}, make(chan struct{})
		bucket.OnWatch(func(watch func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
			<-start
			return watch()
		})
		f.Election("a", "first", bucket)
		b := f.Election("b", "second", bucket)
		close(start)
		After(Interval / 2)
		leader.Stop()
		After(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestElectionsOfOneProcessShareOneWatcher(t *testing.T) {
	Run(t, func(f *Fleet) {
		var all []*election.Election
		for i := range 10 {
			all = append(all, f.Election("a", fmt.Sprintf("key-%d", i), f.Bucket))
		}
		After(Interval)
		f.Expect(f.Stream().Consumers).To(Equal(1))
		for _, e := range all {
			f.Expect(e.IsLeader()).To(BeTrue())
			f.Expect(e.Status().Notifications).To(Equal("watch"))
			f.Expect(e.Shutdown(context.Background())).To(Succeed())
		}
		After(time.Second)
		f.Expect(f.Stream().Consumers).To(BeZero())
	})
}

func TestRepublishedChangesNeedNoConsumer(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		b := f.Connected("b").Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		f.Expect(f.Stream().Consumers).To(BeZero())
	}, Republished)
}

func TestLeaderReplacesASourceThatOmitsItsRenewals(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a")
		a.Link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		a.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Notifications).To(Equal("republish"), "one lost notification may be chance")
		After(2 * Interval)
		f.Expect(a.Status().Notifications).To(Equal("watch"))
		After(20 * Interval)
		f.Expect(a.Seen()).To(HaveLen(1))
	}, Republished)
}

func TestStalledSourceIsReplaced(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Connected("b")
		b.Link.LoseReplies(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "election.") })
		b.Begin()
		f.Expect(b.Status().Notifications).To(Equal("republish"))
		After(5 * Interval)
		f.Expect(b.Status().Notifications).To(Equal("watch"))
		After(5 * Interval)
		a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestUnnotifiedCandidatePollsAndWarnsOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		f.Leading("a").End()
		f.Write("stranger")
		b := f.Unnotified("b", election.WithLogger(log.Logger())).Begin()
		f.Expect(b.Status().Notifications).To(Equal("none"))
		After(TTL + 400*time.Millisecond + 2*Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		After(10 * TTL)
		f.Expect(log.Count(`level=WARN msg="Changes of the bucket cannot be received`)).To(Equal(1))
	})
}

func TestReconnectedCandidateIsNotified(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a, b := f.LeaderAndFollower(candidate)
		b.Link.Disconnect()
		After(time.Second)
		After(2 * TTL)
		a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestRenewalsAreDeliveredOnlyToProcessesThatUseTheirKey(t *testing.T) {
	Run(t, func(f *Fleet) {
		const keys = 20
		leaders := f.Open(f.Server.Connect(f.T))
		for i := range keys {
			f.Election("a", fmt.Sprint("key-", i), leaders)
		}
		After(2 * Interval)
		nc := f.Server.Connect(f.T)
		followers := f.Open(nc)
		for i := range 2 {
			f.Election("b", fmt.Sprint("key-", i), followers)
		}
		After(2 * Interval)
		before := nc.Stats().InMsgs
		After(8 * Interval)
		received := nc.Stats().InMsgs - before
		f.Expect(received).To(BeNumerically(">=", 2*8), "the renewals of two keys")
		f.Expect(received).To(BeNumerically("<", 2*8+keys), "and of no others")
	}, Republished)
}

func TestCandidatesAreNotifiedWhateverSubjectsTheBucketRepublishesOn(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, r := range map[string]jetstream.RePublish{
		"below a prefix":                {Source: "$KV." + natstest.BucketName + ".>", Destination: "election.changes.>"},
		"whole subjects below a prefix": {Source: ">", Destination: "election.changes.>"},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(2 * Interval)
				b := f.Connected("b").Begin()
				After(3 * TTL)
				f.Expect(b.Status().Notifications).To(Equal("republish"))
				a.End()
				After(Spread)
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
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"watch": natstest.WithMarkers, "republish": Republished} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				process := func(name string, keys ...string) (all []*election.Election) {
					bucket := f.Open(f.Server.Connect(f.T))
					for _, key := range keys {
						all = append(all, f.Election(name, key, bucket))
						After(Instant) // so that the source is started for the first key alone
					}
					return all
				}
				leaders := process("a", "one", "two")
				After(Interval)
				others := process("b", "one", "two")
				for i := range leaders {
					f.Expect(leaders[i].Transfer(context.Background(), "b")).To(Succeed())
					After(Instant)
					f.Expect(others[i].IsLeader()).To(BeTrue())
				}
				After(time.Second)
				f.Expect(others[0].IsLeader() && others[1].IsLeader()).To(BeTrue())
			}, change)
		})
	}
}

func TestUnnotifiedCandidateIsNotifiedOnceASecondKeyCanBeWatched(t *testing.T) {
	Run(t, func(f *Fleet) {
		bucket := &Faulty{KeyValue: f.Bare(f.Server.Connect(f.T))}
		var asked atomic.Int64
		bucket.OnWatch(func(func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) { // of a single key
			asked.Add(1)
			return nil, nats.ErrPermissionViolation
		})
		one := f.Election("a", "one", bucket)
		After(5 * time.Second)
		f.Expect(one.Status().Notifications).To(Equal("none"))
		f.Expect(asked.Load()).To(BeEquivalentTo(2), "by the source, and by the read that showed nothing")
		two := f.Election("a", "two", bucket)
		After(2 * time.Second)
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
	Run(t, func(f *Fleet) {
		bucket := &unwatchable{KeyValue: f.Bare(f.Server.Connect(f.T))}
		f.Election("a", "one", bucket)
		for range 60 {
			lock := f.Election("a", "lock", bucket)
			After(time.Second)
			f.Expect(lock.Status().Notifications).To(Equal("none"))
			f.Expect(lock.Shutdown(context.Background())).To(Succeed())
		}
		f.Expect(bucket.asked.Load()).To(BeNumerically("<=", 8), "in a minute")
	})
}

func TestUnnotifiedCandidateIsNotifiedSoonAfterItsBucketWasMadeAgain(t *testing.T) {
	Run(t, func(f *Fleet) {
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.CandidateOn("a", l, Unwatchable{KeyValue: f.Bare(nc)}, election.WithJetStream(js)).Begin()
		After(Interval + TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Notifications).To(Equal("none"))
		f.Changes = []func(*jetstream.KeyValueConfig){Republished} // as CreateBucket makes it
		f.Remake(TTL)
		for a.State() != election.LeaderElectState {
			After(10 * time.Millisecond)
		}
		After(2 * time.Second)
		f.Expect(a.Status().Notifications).To(Equal("republish"))
	})
}
