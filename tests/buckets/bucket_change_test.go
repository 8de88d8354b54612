package buckets_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// makingBuckets passes a JetStream context on a server of its own, on virtual time.
func makingBuckets(t *testing.T, f func(t *testing.T, g *WithT, s *natstest.Server, js jetstream.JetStream)) {
	natstest.Bubble(t, func(t *testing.T) {
		g, s := NewWithT(t), natstest.Start(t)
		js, err := jetstream.New(s.Connect(t))
		g.Expect(err).NotTo(HaveOccurred())
		f(t, g, s, js)
	})
}

// streamOf returns what the server says of the stream behind the bucket.
func streamOf(g *WithT, js jetstream.JetStream, bucket string) *jetstream.StreamInfo {
	s, err := js.Stream(context.Background(), kv.StreamName(bucket))
	g.Expect(err).NotTo(HaveOccurred())
	return s.CachedInfo()
}

func inMemory(ttl time.Duration) election.BucketConfig {
	return election.BucketConfig{Name: "E", TTL: ttl, Storage: jetstream.MemoryStorage}
}

func TestCreateBucketPinsTheIdentityOfNewAndOldBuckets(t *testing.T) {
	makingBuckets(t, func(t *testing.T, g *WithT, _ *natstest.Server, js jetstream.JetStream) {
		ctx := context.Background()
		pinned := func() (pin string, created time.Time) {
			info := streamOf(g, js, "E")
			return info.Config.Metadata[kv.CreatedMetadata], info.Created
		}
		_, err := election.CreateBucket(ctx, js, inMemory(TTL))
		g.Expect(err).NotTo(HaveOccurred())
		pin, created := pinned()
		g.Expect(pin).To(Equal(created.UTC().Format(time.RFC3339Nano)))

		_, err = election.CreateBucket(ctx, js, inMemory(2*TTL))
		g.Expect(err).NotTo(HaveOccurred())
		again, _ := pinned()
		g.Expect(again).To(Equal(pin), "a change leaves the pin as it is")

		g.Expect(js.DeleteKeyValue(ctx, "E")).To(Succeed())
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "E", TTL: TTL, Storage: jetstream.MemoryStorage, Metadata: map[string]string{"owner": "ops"}})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = election.CreateBucket(ctx, js, inMemory(TTL))
		g.Expect(err).NotTo(HaveOccurred())
		pin, created = pinned()
		g.Expect(pin).To(Equal(created.UTC().Format(time.RFC3339Nano)))
		g.Expect(streamOf(g, js, "E").Config.Metadata).To(HaveKeyWithValue("owner", "ops"))
	})
}

func TestCreateBucketReplacesAPinThatWasCopiedToANewBucket(t *testing.T) {
	makingBuckets(t, func(t *testing.T, g *WithT, _ *natstest.Server, js jetstream.JetStream) {
		ctx := context.Background()
		_, err := election.CreateBucket(ctx, js, inMemory(TTL))
		g.Expect(err).NotTo(HaveOccurred())
		copied := streamOf(g, js, "E").Config
		g.Expect(js.DeleteKeyValue(ctx, "E")).To(Succeed())
		time.Sleep(time.Minute)
		_, err = js.CreateStream(ctx, copied)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = election.CreateBucket(ctx, js, inMemory(TTL))
		g.Expect(err).NotTo(HaveOccurred())
		info := streamOf(g, js, "E")
		g.Expect(info.Config.Metadata[kv.CreatedMetadata]).To(Equal(info.Created.UTC().Format(time.RFC3339Nano)))
	})
}

// counting counts the changes of streams.
type counting struct {
	jetstream.JetStream
	updates *int
}

func (c counting) UpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	*c.updates++
	return c.JetStream.UpdateStream(ctx, cfg)
}

func TestCreateBucketLeavesABucketAloneThatIsAsItShouldBe(t *testing.T) {
	makingBuckets(t, func(t *testing.T, g *WithT, _ *natstest.Server, js jetstream.JetStream) {
		ctx, updates := context.Background(), 0
		for _, choria := range []bool{false, true} {
			cfg := inMemory(TTL)
			if cfg.ChoriaCompatible = choria; choria {
				cfg.Name = "CHORIA"
			}
			_, err := election.CreateBucket(ctx, js, cfg)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = election.CreateBucket(ctx, counting{js, &updates}, cfg)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(updates).To(BeZero())
		}
		_, err := election.CreateBucket(ctx, counting{js, &updates}, inMemory(2*TTL))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(updates).To(Equal(1))
	})
}

func TestWriteOfOneKeyRemovesNoOtherWhereTheServerLetsItBeForbidden(t *testing.T) {
	makingBuckets(t, func(t *testing.T, g *WithT, _ *natstest.Server, js jetstream.JetStream) {
		ctx := context.Background()
		rollUp := func(bucket, value string) error {
			m := nats.NewMsg(kv.Subject(bucket, "locks.zz"))
			m.Header.Set(jetstream.MsgRollup, value)
			_, err := js.PublishMsg(ctx, m)
			return err
		}
		_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "OLD", TTL: TTL, Storage: jetstream.MemoryStorage})
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"NEW", "OLD"} {
			cfg := inMemory(TTL)
			cfg.Name, cfg.ChoriaCompatible = name, true
			bucket, err := election.CreateBucket(ctx, js, cfg)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = bucket.PutString(ctx, "scheduler", "web-1")
			g.Expect(err).NotTo(HaveOccurred())
			for _, value := range []string{"all", " ALL", "sub"} {
				g.Expect(rollUp(name, value)).NotTo(Succeed(), value)
			}
			_, err = bucket.Get(ctx, "scheduler")
			g.Expect(err).NotTo(HaveOccurred())
		}
	})
}

func TestTTLIsNotShortenedWhileSomebodyHoldsAKey(t *testing.T) {
	Run(t, func(f *Fleet) {
		ctx := context.Background()
		js := f.JetStream()
		shorten := func(to time.Duration) error {
			cfg := inMemory(to)
			cfg.Name = natstest.BucketName
			_, err := election.CreateBucket(ctx, js, cfg)
			return err
		}
		a := f.Connected("a").Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(shorten(TTL / 2)).To(And(MatchError(election.ErrBucketUnsuitable),
			MatchError(ContainSubstring(`"a" holds the key "`+Key+`"`)), MatchError(ContainSubstring("resign"))))
		f.Expect(shorten(TTL)).To(Succeed())
		f.Expect(shorten(2 * TTL)).To(Succeed())
		f.Expect(streamOf(f.WithT, js, natstest.BucketName).Config.MaxAge).To(Equal(2 * TTL))
		f.Expect(a.IsLeader()).To(BeTrue())
		a.End()
		f.Expect(shorten(TTL/2)).To(Succeed(), "the key is released")
		f.Expect(streamOf(f.WithT, js, natstest.BucketName).Config.MaxAge).To(Equal(TTL / 2))
	})
}

func TestLeaderKnowsALongerTTLAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		js := f.JetStream()
		a, b := f.Connected("a").Begin(), f.Connected("b")
		After(Interval)
		b.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		cfg := inMemory(2 * TTL)
		cfg.Name = natstest.BucketName
		_, err := election.CreateBucket(context.Background(), js, cfg)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(a.Status().TTL).To(Equal(2 * TTL))
		f.Expect(b.Status().TTL).To(Equal(2 * TTL))
	})
}

func TestAccountThatDemandsALimitIsNamedAndGivenOne(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, ctx := NewWithT(t), context.Background()
		s := natstest.Start(t, func(o *server.Options) {
			g.Expect(o.ProcessConfigString(`accounts { DEMANDING { jetstream { max_mem: 1G, max_file: 1G, max_bytes_required: true }, users [ { user: u, password: p } ] } }`)).To(Succeed())
		})
		js, err := jetstream.New(s.Connect(t, nats.UserInfo("u", "p")))
		g.Expect(err).NotTo(HaveOccurred())
		cfg := inMemory(TTL)
		_, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).To(And(MatchError(election.ErrBucketUnsuitable), MatchError(ContainSubstring("set MaxBytes"))))
		cfg.MaxBytes = 1 << 20
		_, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(streamOf(g, js, "E").Config.MaxBytes).To(BeEquivalentTo(1 << 20))
		cfg.MaxBytes = 0
		_, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(streamOf(g, js, "E").Config.MaxBytes).To(BeEquivalentTo(1<<20), "0 leaves what the bucket has")
		for _, limit := range []int64{-1, 1} {
			cfg.MaxBytes = limit
			_, err = election.CreateBucket(ctx, js, cfg)
			g.Expect(err).To(MatchError(election.ErrInvalidOption))
		}
	})
}

func TestBucketsWaitForAConnectionThatIsBeingMade(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, s := NewWithT(t), natstest.Start(t)
		s.Stop()
		for _, buffer := range []int{-1, 1 << 20} {
			nc := s.Connect(t, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(buffer))
			js, err := jetstream.New(nc)
			g.Expect(err).NotTo(HaveOccurred())
			make := func(ctx context.Context) error {
				_, err := election.CreateBucket(ctx, js, inMemory(TTL))
				return err
			}
			open := func(ctx context.Context) error { _, err := election.OpenBucket(ctx, js, "E"); return err }

			for _, do := range []func(context.Context) error{make, open} {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				began := time.Now()
				err := do(ctx)
				g.Expect(err).To(And(MatchError(context.DeadlineExceeded), MatchError(ContainSubstring(natstest.ErrStopped.Error()))))
				g.Expect(err.Error()).NotTo(ContainSubstring("outbound buffer"))
				g.Expect(time.Since(began)).To(Equal(time.Minute))
				cancel()
			}

			results := inTurn(make, open)
			time.Sleep(time.Hour)
			g.Expect(results).NotTo(Receive())
			s.Resume(t)
			time.Sleep(time.Minute)
			g.Expect(results).To(Receive(BeNil()))

			nc.Close()
			g.Expect(open(context.Background())).To(MatchError(nats.ErrConnectionClosed))
			s.Stop()
		}
	})
}

// inTurn calls the functions one after the other in the background, and sends their errors.
func inTurn(do ...func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	go func() {
		var errs []error
		for _, f := range do {
			errs = append(errs, f(context.Background()))
		}
		result <- errors.Join(errs...)
	}()
	return result
}
