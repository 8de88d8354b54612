package election_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// service is a candidate with the default durations, but for those that the given options set.
func (f *fleet) service(name string, bucket jetstream.KeyValue, opts ...election.Option) *election.Election {
	f.Helper()
	e, err := election.NewElection(name, key, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return e
}

// runFor starts the services at once, and stops them after a while. It returns how long it took until one of them led.
func (f *fleet) runFor(d time.Duration, services ...*election.Election) (until time.Duration) {
	f.Helper()
	begun := time.Now()
	for _, e := range services {
		go func() { _ = e.Start(context.Background()) }()
	}
	leads := func() bool { return slices.ContainsFunc(services, (*election.Election).IsLeader) }
	for !leads() && time.Since(begun) < 2*ttl {
		after(time.Millisecond)
	}
	until = time.Since(begun)
	after(d)
	f.Expect(leads()).To(BeTrue())
	for _, e := range services {
		go func() { _ = e.Shutdown(context.Background()) }()
	}
	synctest.Wait()
	after(time.Second)
	return until
}

// How old the release is that a service finds when it starts again.
var stoppedFor = []time.Duration{time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour}

func TestServiceThatWasStoppedInOrderLeadsAtOnceHoweverLongAgoThatWas(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.KeyValueConfig)
		open   func(f *fleet) jetstream.KeyValue
	}{
		"republished changes": {republished, func(f *fleet) jetstream.KeyValue { return f.Open(f.Server.Connect(f.T)) }},
		"a watcher": {func(cfg *jetstream.KeyValueConfig) {
			republished(cfg)
			cfg.RePublish = nil
		}, func(f *fleet) jetstream.KeyValue { return f.Open(f.Server.Connect(f.T)) }},
		"a handle of the client, and its connection": {republished, func(f *fleet) jetstream.KeyValue { return f.Bare(f.Server.Connect(f.T)) }},
	} {
		for _, stopped := range stoppedFor {
			t.Run(fmt.Sprintf("%s, %v", name, stopped), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					nc := f.Server.Connect(f.T)
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					opts := []election.Option{election.WithJetStream(js)}
					f.runFor(ttl, f.service("a", c.open(f), opts...))
					after(stopped)
					f.Expect(f.runFor(0, f.service("a", c.open(f), opts...))).To(BeNumerically("<", 100*time.Millisecond))
				}, c.change)
			})
		}
	}
}

// A handle whose connection is not known reads what others have released, and its own releases expire.
func TestServiceThatDoesNotKnowItsConnectionLeadsAtOnceAfterOneThatDoes(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.runFor(ttl, f.service("a", f.Open(f.Server.Connect(f.T))))
		after(time.Hour)
		bare := f.service("b", f.Bare(f.Server.Connect(f.T)))
		f.Expect(f.runFor(ttl, bare)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		after(2 * ttl)
		f.Expect(f.record()).To(BeEmpty())
	}, republished)
}

func TestServicesThatStopAndStartTogetherHaveALeaderAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		services := func() (all []*election.Election) {
			for _, name := range []string{"a", "b", "c"} {
				all = append(all, f.service(name, f.Open(f.Server.Connect(f.T))))
			}
			return all
		}
		f.runFor(2*ttl, services()...)
		after(time.Hour)
		before := f.Stream().LastSeq
		f.Expect(f.runFor(0, services()...)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(f.Stream().LastSeq-before).To(BeNumerically("<", 6), "one wins, and the release")
	}, republished)
}

func TestReleaseIsOneRequest(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"remembered": republished, "for candidates of Choria": fleettest.WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				before := f.Stream().LastSeq
				a.shutdown()
				after(time.Second)
				f.Expect(f.Stream().LastSeq).To(Equal(before + 1))
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
			}, change)
		})
	}
}

func TestReleaseExpiresWhereTheBucketDoesNotRemember(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"markers": natstest.WithMarkers, "for candidates of Choria": fleettest.WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				a.shutdown()
				f.Expect(f.record()).NotTo(BeEmpty())
				after(2 * ttl)
				f.Expect(f.Stream().Msgs).To(BeZero())
			}, change)
		})
	}
}

func TestCandidateThatOnlyCreatesKeysTakesAReleasedOneAtOnce(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"remembered": republished, "for candidates of Choria": fleettest.WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				a.shutdown()
				_, err := f.Bare(f.Server.Connect(f.T)).Create(context.Background(), key, []byte("plain"))
				f.Expect(err).NotTo(HaveOccurred())
			}, change)
		})
	}
}

// What a leader-elect passes on must be read: nobody may create the key over it.
func TestReleaseThatPassesOnAStandDownIsNoDeletion(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(instant)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		a.shutdown()
		_, err := f.Bucket.Create(context.Background(), key, []byte("plain"))
		f.Expect(err).To(MatchError(jetstream.ErrKeyExists))
		after(ttl + 2*time.Second)
		f.Expect(f.record()).To(BeEmpty(), "it expires")
	}, republished)
}

// The handle of a program may count writes, or change them: a release is written by it.
func TestReleaseGoesThroughAHandleThatIsNotTheClients(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		opened := f.Open(f.Server.Connect(f.T))
		b := &wrapped{KeyValue: opened}
		f.runFor(ttl, f.service("a", b, election.WithJetStream(opened.JetStream())))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		f.Expect(b.released).To(BeTrue())
	}, republished)
}

// wrapped is a bucket that notes releases.
type wrapped struct {
	jetstream.KeyValue
	released bool
}

func (b *wrapped) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	_, b.released = record.Parse(value, 0).IsRelease()
	return b.KeyValue.Update(ctx, key, value, revision)
}

// forgedDeletions are deletions that carry what looks like a release of the term that the given record is of.
var forgedDeletions = map[string]func(f *fleet, r record.Record) *nats.Msg{
	"without the secret": func(f *fleet, r record.Record) *nats.Msg {
		r.Secret = record.NewSecret()
		return f.deletion(r, f.revision())
	},
	"with a commitment of its own": func(f *fleet, r record.Record) *nats.Msg {
		r.Secret = record.NewSecret()
		r.Commitment = r.Secret.Commitment()
		return f.deletion(r, f.revision())
	},
	"without a condition": func(f *fleet, r record.Record) *nats.Msg {
		m := f.deletion(r, 0)
		m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
		return m
	},
	"purging": func(f *fleet, r record.Record) *nats.Msg {
		m := f.deletion(r, f.revision())
		m.Header.Set("KV-Operation", "PURGE")
		return m
	},
}

// deletion returns a deletion that carries a release, never expires, and demands a revision.
func (f *fleet) deletion(r record.Record, revision uint64) *nats.Msg {
	r.Released, r.Successors, r.Attempt = time.Now(), []string{"b"}, record.NewID()
	m := nats.NewMsg("$KV." + natstest.BucketName + "." + key)
	m.Data = r.Encode()
	m.Header.Set("KV-Operation", "DEL")
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(revision))
	m.Header.Set(jetstream.MsgTTLHeader, "never")
	return m
}

func TestForgedDeletionElectsNobody(t *testing.T) {
	for name, forge := range forgedDeletions {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				b := f.connected("b").start()
				after(2 * interval)
				a.link.Cut()
				js, err := jetstream.New(f.Server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				_, err = js.PublishMsg(context.Background(), forge(f, f.stored()))
				f.Expect(err).NotTo(HaveOccurred())
				f.expectOneLeader(2*ttl, a, b)
				f.Expect(b.IsLeader()).To(BeTrue(), "nor does it keep others from leading")
			}, republished)
		})
	}
}

// A candidate that has read nothing of a term believes its own rule: a release must open its commitment, and have been written by condition.
func TestForgedDeletionThatProvesNothingByItselfDeceivesNoCandidateThatStarts(t *testing.T) {
	for _, name := range []string{"without the secret", "without a condition", "purging"} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				a.link.Cut()
				js, err := jetstream.New(f.Server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				_, err = js.PublishMsg(context.Background(), forgedDeletions[name](f, f.stored()))
				f.Expect(err).NotTo(HaveOccurred())
				b := f.connected("b").start()
				f.expectOneLeader(2*ttl, a, b)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestDeletionThatCarriesAReleaseOfAnEarlierBucketProvesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.runFor(ttl, f.service("a", f.Open(f.Server.Connect(f.T))))
		old := f.stored()
		f.remake(ttl)
		js, err := jetstream.New(f.Server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.PublishMsg(context.Background(), f.deletion(old, 0))
		f.Expect(err).NotTo(HaveOccurred())
		b := f.connected("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeFalse(), "it stands down for a whole lease")
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestFirstCampaignOfANotifiedCandidateComesWithinTheSpreadOfAnswers(t *testing.T) {
	for range 20 {
		onVirtualTime(t, func(f *fleet) {
			begun := time.Now()
			e := f.service("a", f.Open(f.Server.Connect(f.T)))
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			for e.State() != election.LeaderElectState {
				after(time.Millisecond)
			}
			f.Expect(time.Since(begun)).To(BeNumerically("<=", ttl/16+instant))
		}, republished)
	}
}

func TestCandidatesThatStartAtOnceMakeFewAttempts(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var attempts atomic.Int64
		nc := f.Server.Connect(f.T)
		_, err := nc.Subscribe("$KV."+natstest.BucketName+"."+key, func(m *nats.Msg) {
			if r := record.Parse(m.Data, 0); r.Term == 0 && r.Released.IsZero() {
				attempts.Add(1)
			}
		})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(nc.Flush()).To(Succeed())
		const candidates = 200
		for i := range candidates {
			e := f.service(fmt.Sprint("c", i), f.Open(f.Server.Connect(f.T)))
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		}
		after(3 * interval)
		f.Expect(attempts.Load()).To(BeNumerically("<", candidates/4))
	}, republished)
}
