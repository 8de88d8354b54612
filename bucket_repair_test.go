package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

// createBucket calls CreateBucket for the bucket of the fleet, with changes.
func (f *fleet) createBucket(to time.Duration, changes ...func(*election.BucketConfig)) error {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	cfg := inMemory(to)
	cfg.Name = natstest.BucketName
	for _, change := range changes {
		change(&cfg)
	}
	_, err = election.CreateBucket(context.Background(), js, cfg)
	return err
}

func (f *fleet) streamConfig() jetstream.StreamConfig {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	return streamOf(f.WithT, js, natstest.BucketName).Config
}

func forChoria(cfg *election.BucketConfig) { cfg.ChoriaCompatible = true }

func TestLeaderLeadsOnWhenCreateBucketGivesItsBucketTheTTLBackThatItHad(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"no TTL": 0, "a TTL that is too long": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(3 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				term, _ := a.Term()
				f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = wrong; cfg.RePublish = nil })
				after(10 * ttl)
				f.Expect(a.IsLeader()).To(BeTrue())

				before := f.streamConfig()
				f.Expect(f.createBucket(ttl - time.Second)).To(And(MatchError(election.ErrBucketUnsuitable),
					MatchError(ContainSubstring(`"a" holds the key "`+key+`" with a lease of`)), MatchError(ContainSubstring("TTL of "+ttl.String()+" or more"))))
				f.Expect(f.streamConfig()).To(Equal(before), "nothing is changed")

				f.Expect(f.createBucket(ttl)).To(Succeed())
				f.Expect(f.streamConfig().MaxAge).To(Equal(ttl))
				after(10 * ttl)
				now, _ := a.Term()
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(now.Number).To(Equal(term.Number), "the term goes on")
				a.link.Cut()
				after(4 * ttl)
				f.Expect(b.IsLeader()).To(BeTrue(), "the key of a leader that is cut off expires again")
			})
		})
	}
}

func TestCreateBucketFreesTheKeyOfALeaderThatCrashedWhileKeysDidNotExpire(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(2 * interval)
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
		a.link.Cut()
		b := f.connected("b")
		after(time.Minute)
		f.Expect(b.Start(context.Background())).To(MatchError(ContainSubstring("election-cli bucket edit --bucket " + natstest.BucketName)))
		f.Expect(f.createBucket(ttl/2)).To(Succeed(), "the lease of the record is over")
		b = f.connected("b").start()
		after(3 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestCreateBucketChangesNoBucketThatHoldsWhatIsNoElections(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		key, value string
		change     func(*jetstream.StreamConfig)
		choria     bool
		says       string
	}{
		"text, no TTL":               {"config.db", "postgres://db", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, false, "evict each"},
		"text, no TTL, for Choria":   {"config.db", "postgres://db", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "evict each"},
		"text, a long TTL":           {"config.db", "postgres://db", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 24 * time.Hour }, true, "evict each"},
		"text, a history":            {"config.db", "postgres://db", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = 5 }, false, "ChoriaCompatible"},
		"an object, no TTL":          {"config.db", `{"host":"db"}`, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"an object, spaces":          {"config.db", "{\n  \"host\": \"db\"}", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"a list":                     {"config.db", `["db"]`, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"bytes":                      {"config.db", "\x00\xff", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"nothing":                    {"config.db", "", func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"a long text":                {"config.db", string(make([]byte, 300)), func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 }, true, "another bucket"},
		"an object, not republished": {"config.db", `{"host":"db"}`, func(cfg *jetstream.StreamConfig) { cfg.RePublish = nil }, false, "another bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.configure(c.change)
				_, err := f.Bucket.PutString(context.Background(), c.key, c.value)
				f.Expect(err).NotTo(HaveOccurred())
				before := f.streamConfig()
				if before.MaxAge != ttl {
					after(2 * time.Hour) // no lease lasts so long
				}
				var changes []func(*election.BucketConfig)
				if c.choria {
					changes = append(changes, forChoria)
				}
				f.Expect(f.createBucket(ttl, changes...)).To(And(MatchError(election.ErrBucketUnsuitable),
					MatchError(ContainSubstring(`"config.db"`)), MatchError(ContainSubstring(c.says))))
				f.Expect(f.streamConfig()).To(Equal(before))
				value, err := f.Bucket.Get(context.Background(), c.key)
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(string(value.Value())).To(Equal(c.value))
				f.Expect(f.Bucket.Delete(context.Background(), c.key)).To(Succeed())
				f.Expect(f.createBucket(ttl, changes...)).To(Succeed(), "a deletion is no data")
			}, func(*jetstream.KeyValueConfig) {})
		})
	}
}

func TestCreateBucketGivesTheTTLBackWhereCandidatesOfChoriaLead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Expect(f.createBucket(ttl, forChoria)).To(Succeed())
		a := f.candidate("a", election.WithPlainValue()).start()
		after(3 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
		after(ttl)
		f.Expect(f.createBucket(ttl)).To(MatchError(ContainSubstring("--choria-compatible")))
		f.Expect(f.createBucket(ttl/2, forChoria)).To(MatchError(ContainSubstring("does not say how long its lease is")))
		f.Expect(f.createBucket(ttl, forChoria)).To(Succeed())
		after(10 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1), "the term goes on")
		f.Expect(f.streamConfig().SubjectDeleteMarkerTTL).To(BeZero())
	}, func(*jetstream.KeyValueConfig) {})
}

func TestCreateBucketKeepsNoteOfTheTTLThatABucketHadBeforeItLostIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for _, wrong := range []time.Duration{0, 3 * time.Hour} {
			f.Expect(f.createBucket(2 * ttl)).To(Succeed())
			f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = wrong })
			f.Expect(f.createBucket(ttl)).To(Succeed())
			f.Expect(f.streamConfig().Metadata[kv.LongestTTLMetadata]).To(Equal((2 * ttl).String()))
		}
	})
}
