package buckets_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// createBucket calls CreateBucket for the bucket of the fleet, with changes.
func createBucket(f *Fleet, to time.Duration, changes ...func(*election.BucketConfig)) error {
	f.Helper()
	js := f.JetStream()
	cfg := inMemory(to)
	cfg.Name = natstest.BucketName
	for _, change := range changes {
		change(&cfg)
	}
	_, err := election.CreateBucket(context.Background(), js, cfg)
	return err
}

func streamConfig(f *Fleet) jetstream.StreamConfig {
	f.Helper()
	js := f.JetStream()
	return streamOf(f.WithT, js, natstest.BucketName).Config
}

func forChoria(cfg *election.BucketConfig) { cfg.ChoriaCompatible = true }

func TestLeaderLeadsOnWhenCreateBucketGivesItsBucketTheTTLBackThatItHad(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"no TTL": 0, "a TTL that is too long": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a, b := f.LeaderAndFollower(candidate)
				f.Expect(a.IsLeader()).To(BeTrue())
				term, _ := a.Term()
				f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = wrong; cfg.RePublish = nil })
				After(10 * TTL)
				f.Expect(a.IsLeader()).To(BeTrue())

				before := streamConfig(f)
				f.Expect(createBucket(f, TTL-time.Second)).To(And(MatchError(election.ErrBucketUnsuitable),
					MatchError(ContainSubstring(`"a" holds the key "`+Key+`" with a lease of`)), MatchError(ContainSubstring("TTL of "+TTL.String()+" or more"))))
				f.Expect(streamConfig(f)).To(Equal(before), "nothing is changed")

				f.Expect(createBucket(f, TTL)).To(Succeed())
				f.Expect(streamConfig(f).MaxAge).To(Equal(TTL))
				After(10 * TTL)
				now, _ := a.Term()
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(now.Number).To(Equal(term.Number), "the term goes on")
				a.Link.Cut()
				After(4 * TTL)
				f.Expect(b.IsLeader()).To(BeTrue(), "the key of a leader that is cut off expires again")
			})
		})
	}
}

func TestCreateBucketFreesTheKeyOfALeaderThatCrashedWhileKeysDidNotExpire(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(2 * Interval)
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
		a.Link.Cut()
		b := f.Connected("b")
		After(time.Minute)
		f.Expect(b.Start(context.Background())).To(MatchError(ContainSubstring("election-cli bucket edit --bucket " + natstest.BucketName)))
		f.Expect(createBucket(f, TTL/2)).To(Succeed(), "the lease of the record is over")
		b = f.Connected("b").Begin()
		After(3 * TTL)
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
			Run(t, func(f *Fleet) {
				f.Configure(c.change)
				_, err := f.Bucket.PutString(context.Background(), c.key, c.value)
				f.Expect(err).NotTo(HaveOccurred())
				before := streamConfig(f)
				if before.MaxAge != TTL {
					After(2 * time.Hour) // no lease lasts so long
				}
				var changes []func(*election.BucketConfig)
				if c.choria {
					changes = append(changes, forChoria)
				}
				f.Expect(createBucket(f, TTL, changes...)).To(And(MatchError(election.ErrBucketUnsuitable),
					MatchError(ContainSubstring(`"config.db"`)), MatchError(ContainSubstring(c.says))))
				f.Expect(streamConfig(f)).To(Equal(before))
				value, err := f.Bucket.Get(context.Background(), c.key)
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(string(value.Value())).To(Equal(c.value))
				f.Expect(f.Bucket.Delete(context.Background(), c.key)).To(Succeed())
				f.Expect(createBucket(f, TTL, changes...)).To(Succeed(), "a deletion is no data")
			}, func(*jetstream.KeyValueConfig) {})
		})
	}
}

func TestCreateBucketGivesTheTTLBackWhereCandidatesOfChoriaLead(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Expect(createBucket(f, TTL, forChoria)).To(Succeed())
		a := f.Candidate("a", election.WithPlainValue()).Begin()
		After(3 * Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
		After(TTL)
		f.Expect(createBucket(f, TTL)).To(MatchError(ContainSubstring("--choria-compatible")))
		f.Expect(createBucket(f, TTL/2, forChoria)).To(MatchError(ContainSubstring("does not say how long its lease is")))
		f.Expect(createBucket(f, TTL, forChoria)).To(Succeed())
		After(10 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1), "the term goes on")
		f.Expect(streamConfig(f).SubjectDeleteMarkerTTL).To(BeZero())
	}, func(*jetstream.KeyValueConfig) {})
}

func TestCreateBucketKeepsNoteOfTheTTLThatABucketHadBeforeItLostIt(t *testing.T) {
	Run(t, func(f *Fleet) {
		for _, wrong := range []time.Duration{0, 3 * time.Hour} {
			f.Expect(createBucket(f, 2*TTL)).To(Succeed())
			f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = wrong })
			f.Expect(createBucket(f, TTL)).To(Succeed())
			f.Expect(streamConfig(f).Metadata[kv.LongestTTLMetadata]).To(Equal((2 * TTL).String()))
		}
	})
}
