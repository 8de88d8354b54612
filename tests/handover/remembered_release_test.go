package handover_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// service is a candidate with the default durations, but for those that the given options set.
func service(f *Fleet, name string, bucket jetstream.KeyValue, opts ...election.Option) *election.Election {
	f.Helper()
	e, err := election.NewElection(name, Key, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return e
}

// runFor starts the services at once, and stops them after a while. It returns how long it took until one of them led.
func runFor(f *Fleet, d time.Duration, services ...*election.Election) (until time.Duration) {
	f.Helper()
	begun := time.Now()
	for _, e := range services {
		go func() { _ = e.Start(context.Background()) }()
	}
	leads := func() bool { return slices.ContainsFunc(services, (*election.Election).IsLeader) }
	for !leads() && time.Since(begun) < 2*TTL {
		After(time.Millisecond)
	}
	until = time.Since(begun)
	After(d)
	f.Expect(leads()).To(BeTrue())
	for _, e := range services {
		go func() { _ = e.Shutdown(context.Background()) }()
	}
	synctest.Wait()
	After(time.Second)
	return until
}

// How old the release is that a service finds when it starts again.
var stoppedFor = []time.Duration{time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour}

func TestServiceThatWasStoppedInOrderLeadsAtOnceHoweverLongAgoThatWas(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.KeyValueConfig)
		open   func(f *Fleet) jetstream.KeyValue
	}{
		"republished changes": {Republished, func(f *Fleet) jetstream.KeyValue { return f.Open(f.Server.Connect(f.T)) }},
		"a watcher": {func(cfg *jetstream.KeyValueConfig) {
			Republished(cfg)
			cfg.RePublish = nil
		}, func(f *Fleet) jetstream.KeyValue { return f.Open(f.Server.Connect(f.T)) }},
		"a handle of the client, and its connection": {Republished, func(f *Fleet) jetstream.KeyValue { return f.Bare(f.Server.Connect(f.T)) }},
	} {
		for _, stopped := range stoppedFor {
			t.Run(fmt.Sprintf("%s, %v", name, stopped), func(t *testing.T) {
				Run(t, func(f *Fleet) {
					nc := f.Server.Connect(f.T)
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					opts := []election.Option{election.WithJetStream(js)}
					runFor(f, TTL, service(f, "a", c.open(f), opts...))
					After(stopped)
					f.Expect(runFor(f, 0, service(f, "a", c.open(f), opts...))).To(BeNumerically("<", 100*time.Millisecond))
				}, c.change)
			})
		}
	}
}

// A handle whose connection is not known reads what others have released, and its own releases expire.
func TestServiceThatDoesNotKnowItsConnectionLeadsAtOnceAfterOneThatDoes(t *testing.T) {
	Run(t, func(f *Fleet) {
		runFor(f, TTL, service(f, "a", f.Open(f.Server.Connect(f.T))))
		After(time.Hour)
		bare := service(f, "b", f.Bare(f.Server.Connect(f.T)))
		f.Expect(runFor(f, TTL, bare)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
		After(2 * TTL)
		f.Expect(f.Record()).To(BeEmpty())
	}, Republished)
}

func TestServicesThatStopAndStartTogetherHaveALeaderAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		services := func() (all []*election.Election) {
			for _, name := range []string{"a", "b", "c"} {
				all = append(all, service(f, name, f.Open(f.Server.Connect(f.T))))
			}
			return all
		}
		runFor(f, 2*TTL, services()...)
		After(time.Hour)
		before := f.Stream().LastSeq
		f.Expect(runFor(f, 0, services()...)).To(BeNumerically("<", 200*time.Millisecond))
		f.Expect(f.Stream().LastSeq-before).To(BeNumerically("<", 6), "one wins, and the release")
	}, Republished)
}

func TestReleaseIsOneRequest(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"remembered": Republished, "for candidates of Choria": WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				before := f.Stream().LastSeq
				a.End()
				After(time.Second)
				f.Expect(f.Stream().LastSeq).To(Equal(before + 1))
				f.Expect(f.Record()).To(ContainSubstring(`"released"`))
			}, change)
		})
	}
}

func TestReleaseExpiresWhereTheBucketDoesNotRemember(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"markers": natstest.WithMarkers, "for candidates of Choria": WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				a.End()
				f.Expect(f.Record()).NotTo(BeEmpty())
				After(2 * TTL)
				f.Expect(f.Stream().Msgs).To(BeZero())
			}, change)
		})
	}
}

func TestCandidateThatOnlyCreatesKeysTakesAReleasedOneAtOnce(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"remembered": Republished, "for candidates of Choria": WithoutMarkers} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				a.End()
				_, err := f.Bare(f.Server.Connect(f.T)).Create(context.Background(), Key, []byte("plain"))
				f.Expect(err).NotTo(HaveOccurred())
			}, change)
		})
	}
}

// What a leader-elect passes on must be read: nobody may create the key over it.
func TestReleaseThatPassesOnAStandDownIsNoDeletion(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Instant)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		a.End()
		_, err := f.Bucket.Create(context.Background(), Key, []byte("plain"))
		f.Expect(err).To(MatchError(jetstream.ErrKeyExists))
		After(TTL + 2*time.Second)
		f.Expect(f.Record()).To(BeEmpty(), "it expires")
	}, Republished)
}

// The handle of a program may count writes, or change them: a release is written by it.
func TestReleaseGoesThroughAHandleThatIsNotTheClients(t *testing.T) {
	Run(t, func(f *Fleet) {
		opened := f.Open(f.Server.Connect(f.T))
		b := &wrapped{KeyValue: opened}
		runFor(f, TTL, service(f, "a", b, election.WithJetStream(opened.JetStream())))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
		f.Expect(b.released).To(BeTrue())
	}, Republished)
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
var forgedDeletions = map[string]func(f *Fleet, r record.Record) *nats.Msg{
	"without the secret": func(f *Fleet, r record.Record) *nats.Msg {
		r.Secret = record.NewSecret()
		return deletion(f, r, f.Revision())
	},
	"with a commitment of its own": func(f *Fleet, r record.Record) *nats.Msg {
		r.Secret = record.NewSecret()
		r.Commitment = r.Secret.Commitment()
		return deletion(f, r, f.Revision())
	},
	"without a condition": func(f *Fleet, r record.Record) *nats.Msg {
		m := deletion(f, r, 0)
		m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
		return m
	},
	"purging": func(f *Fleet, r record.Record) *nats.Msg {
		m := deletion(f, r, f.Revision())
		m.Header.Set("KV-Operation", "PURGE")
		return m
	},
}

// deletion returns a deletion that carries a release, never expires, and demands a revision.
func deletion(f *Fleet, r record.Record, revision uint64) *nats.Msg {
	r.Released, r.Successors, r.Attempt = time.Now(), []string{"b"}, record.NewID()
	m := nats.NewMsg("$KV." + natstest.BucketName + "." + Key)
	m.Data = r.Encode()
	m.Header.Set("KV-Operation", "DEL")
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(revision))
	m.Header.Set(jetstream.MsgTTLHeader, "never")
	return m
}

func TestForgedDeletionElectsNobody(t *testing.T) {
	for name, forge := range forgedDeletions {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				b := f.Connected("b").Begin()
				After(2 * Interval)
				a.Link.Cut()
				js := f.JetStream()
				_, err := js.PublishMsg(context.Background(), forge(f, f.Stored()))
				f.Expect(err).NotTo(HaveOccurred())
				f.ExpectOneLeader(2*TTL, a, b)
				f.Expect(b.IsLeader()).To(BeTrue(), "nor does it keep others from leading")
			}, Republished)
		})
	}
}

// A candidate that has read nothing of a term believes its own rule: a release must open its commitment, and have been written by condition.
func TestForgedDeletionThatProvesNothingByItselfDeceivesNoCandidateThatStarts(t *testing.T) {
	for _, name := range []string{"without the secret", "without a condition", "purging"} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				a.Link.Cut()
				js := f.JetStream()
				_, err := js.PublishMsg(context.Background(), forgedDeletions[name](f, f.Stored()))
				f.Expect(err).NotTo(HaveOccurred())
				b := f.Connected("b").Begin()
				f.ExpectOneLeader(2*TTL, a, b)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, Republished)
		})
	}
}

func TestDeletionThatCarriesAReleaseOfAnEarlierBucketProvesNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		runFor(f, TTL, service(f, "a", f.Open(f.Server.Connect(f.T))))
		old := f.Stored()
		f.Remake(TTL)
		js := f.JetStream()
		_, err := js.PublishMsg(context.Background(), deletion(f, old, 0))
		f.Expect(err).NotTo(HaveOccurred())
		b := f.Connected("b").Begin()
		After(Interval)
		f.Expect(b.IsLeader()).To(BeFalse(), "it stands down for a whole lease")
		After(TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestFirstCampaignOfANotifiedCandidateComesWithinTheSpreadOfAnswers(t *testing.T) {
	for range 20 {
		Run(t, func(f *Fleet) {
			begun := time.Now()
			e := service(f, "a", f.Open(f.Server.Connect(f.T)))
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			for e.State() != election.LeaderElectState {
				After(time.Millisecond)
			}
			f.Expect(time.Since(begun)).To(BeNumerically("<=", TTL/16+Instant))
		}, Republished)
	}
}

func TestCandidatesThatStartAtOnceMakeFewAttempts(t *testing.T) {
	Run(t, func(f *Fleet) {
		var attempts atomic.Int64
		nc := f.Server.Connect(f.T)
		_, err := nc.Subscribe("$KV."+natstest.BucketName+"."+Key, func(m *nats.Msg) {
			if r := record.Parse(m.Data, 0); r.Term == 0 && r.Released.IsZero() {
				attempts.Add(1)
			}
		})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(nc.Flush()).To(Succeed())
		const candidates = 200
		for i := range candidates {
			e := service(f, fmt.Sprint("c", i), f.Open(f.Server.Connect(f.T)))
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		}
		After(3 * Interval)
		f.Expect(attempts.Load()).To(BeNumerically("<", candidates/4))
	}, Republished)
}
