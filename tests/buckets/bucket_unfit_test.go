package buckets_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestStartRefusesAnUnsuitableBucketWithEveryReason(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		change func(*jetstream.KeyValueConfig)
		says   []string
	}{
		"no TTL and a history": {func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.History = 0, 5 }, []string{"has no TTL", "history of 5"}},
		"TTL too short":        {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 500 * time.Millisecond }, []string{"TTL of 500ms"}},
		"TTL too long":         {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 2 * time.Hour }, []string{"TTL of 2h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				err := f.Candidate("a").Start(context.Background())
				f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
				for _, reason := range c.says {
					f.Expect(err.Error()).To(ContainSubstring(reason))
				}
				f.Expect(f.Record()).To(BeEmpty())
			}, c.change)
		})
	}
}

func TestStartRefusesABucketThatItsStreamMakesUnfit(t *testing.T) {
	stream := func(js jetstream.JetStream, change func(*jetstream.StreamConfig)) error {
		cfg := jetstream.StreamConfig{
			Name: "KV_E", Subjects: []string{"$KV.E.>"}, MaxMsgsPerSubject: 1, MaxAge: TTL, Storage: jetstream.MemoryStorage,
			AllowRollup: true, AllowDirect: true, Discard: jetstream.DiscardNew,
		}
		change(&cfg)
		_, err := js.CreateStream(context.Background(), cfg)
		return err
	}
	for reason, create := range map[string]func(js jetstream.JetStream) error{
		"is sealed": func(js jetstream.JetStream) error {
			if err := stream(js, func(*jetstream.StreamConfig) {}); err != nil {
				return err
			}
			s, err := js.Stream(context.Background(), "KV_E")
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			cfg.Sealed = true
			_, err = js.UpdateStream(context.Background(), cfg)
			return err
		},
		"acknowledges no writes": func(js jetstream.JetStream) error {
			return stream(js, func(cfg *jetstream.StreamConfig) { cfg.NoAck = true })
		},
		"mirrors the stream KV_" + natstest.BucketName: func(js jetstream.JetStream) error {
			return stream(js, func(cfg *jetstream.StreamConfig) {
				cfg.Subjects, cfg.Mirror = nil, &jetstream.StreamSource{Name: "KV_" + natstest.BucketName}
			})
		},
	} {
		t.Run(reason, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				js := f.JetStream()
				f.Expect(create(js)).To(Succeed())
				bucket, err := election.OpenBucket(context.Background(), js, "E")
				f.Expect(err).NotTo(HaveOccurred())
				err = f.CandidateOn("a", nil, bucket).Start(context.Background())
				f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
				f.Expect(err).To(MatchError(ContainSubstring(reason)))
			})
		})
	}
}

func TestOpenBucketReportsWhatIsWrong(t *testing.T) {
	Run(t, func(f *Fleet) {
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "KV_ORDERS", Subjects: []string{"orders"}, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		open := func(js jetstream.JetStream, name string) error {
			bucket, err := election.OpenBucket(context.Background(), js, name)
			f.Expect(bucket == nil).To(Equal(err != nil))
			return err
		}
		f.Expect(open(js, natstest.BucketName)).To(Succeed())
		f.Expect(open(nil, natstest.BucketName)).To(MatchError(election.ErrInvalidOption))
		f.Expect(open(js, "no name")).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring(`"no name"`))))
		f.Expect(open(js, "MISSING")).To(And(MatchError(election.ErrBucketUnsuitable), MatchError(ContainSubstring(`"MISSING"`))))
		f.Expect(open(js, "ORDERS")).To(MatchError(election.ErrBucketUnsuitable), "a stream that is no bucket")
		nc.Close()
		f.Expect(open(js, natstest.BucketName)).To(And(MatchError(nats.ErrConnectionClosed), Not(MatchError(election.ErrBucketUnsuitable))))
	})
}

func TestStartRefusesAMissingBucket(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a")
		js := f.JetStream()
		f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		f.Expect(c.Start(context.Background())).To(And(MatchError(election.ErrBucketUnsuitable), MatchError(MatchRegexp("there is no bucket .* make it with CreateBucket, or connect to the account that has it$"))))
	})
}
