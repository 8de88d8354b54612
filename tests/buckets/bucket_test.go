package buckets_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// oldServer is a JetStream context on a server before 2.11, which leaves out what a configuration says of expiry markers.
type oldServer struct{ jetstream.JetStream }

func (d oldServer) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.AllowMsgTTL, cfg.SubjectDeleteMarkerTTL = false, 0
	return d.JetStream.CreateStream(ctx, cfg)
}

func (d oldServer) UpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.AllowMsgTTL, cfg.SubjectDeleteMarkerTTL = false, 0
	return d.JetStream.UpdateStream(ctx, cfg)
}

func onOldServer(t *testing.T, f func(t *testing.T, g *WithT, js jetstream.JetStream)) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		js, err := jetstream.New(natstest.Start(t).Connect(t))
		g.Expect(err).NotTo(HaveOccurred())
		f(t, g, oldServer{js})
	})
}

func TestCreateBucketDoesWithoutMarkersOnAnOldServer(t *testing.T) {
	onOldServer(t, func(t *testing.T, g *WithT, js jetstream.JetStream) {
		cfg := election.BucketConfig{Name: "E", Storage: jetstream.MemoryStorage}
		for _, ttl := range []time.Duration{TTL, 2 * TTL} { // the first call makes the bucket, the second changes it
			cfg.TTL = ttl
			bucket, err := election.CreateBucket(t.Context(), js, cfg)
			g.Expect(err).NotTo(HaveOccurred())
			status, err := bucket.Status(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.TTL()).To(Equal(ttl))
			g.Expect(status.LimitMarkerTTL()).To(BeZero())
			g.Expect(status.Config().RePublish).NotTo(BeNil())
		}
	})
}

func TestCreateBucketReportsTheRefusalOfAnOldServer(t *testing.T) {
	onOldServer(t, func(t *testing.T, g *WithT, js jetstream.JetStream) {
		_, err := election.CreateBucket(t.Context(), js, election.BucketConfig{Name: "E", TTL: TTL, Replicas: 3})
		g.Expect(err).To(MatchError(election.ErrBucketUnsuitable), "there is no cluster")
	})
}

func TestBucketBringsItsConnection(t *testing.T) {
	Run(t, func(f *Fleet) {
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		created, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "E", TTL: TTL, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		opened, err := election.OpenBucket(context.Background(), js, "E")
		f.Expect(err).NotTo(HaveOccurred())
		bare, err := js.KeyValue(context.Background(), "E")
		f.Expect(err).NotTo(HaveOccurred())
		for _, c := range []struct {
			bucket jetstream.KeyValue
			source string
		}{{created, "republish"}, {opened, "republish"}, {bare, "watch"}} {
			a := f.CandidateOn("a", nil, c.bucket).Begin()
			After(Interval)
			f.Expect(a.Status().Notifications).To(Equal(c.source))
			a.End()
		}
		f.Expect(opened.JetStream()).To(BeIdenticalTo(js))
	})
}

func TestBucketThatRepublishesAnotherKeyIsWatched(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		f.Expect(a.Status().Notifications).To(Equal("watch"))
		After(3 * TTL)
		f.Expect(a.Status().Notifications).To(Equal("watch"))
		a.End()

		js := f.JetStream()
		bucket, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: natstest.BucketName, TTL: TTL, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		status, err := bucket.Status(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(status.Config().RePublish.Source).To(Equal("$KV." + natstest.BucketName + ".>"))
		f.Expect(status.Config().RePublish.Destination).To(HavePrefix("election." + natstest.BucketName + "."))
		b := f.Connected("b").Begin()
		After(Interval)
		f.Expect(b.Status().Notifications).To(Equal("republish"))
	}, func(cfg *jetstream.KeyValueConfig) {
		natstest.WithMarkers(cfg)
		cfg.RePublish = &jetstream.RePublish{Source: "$KV." + cfg.Bucket + ".config", Destination: "config"}
	})
}

func TestShortestAndLongestTTLWork(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, limit := range []time.Duration{time.Second, time.Hour} {
		t.Run(limit.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				c := f.Candidate("a").Begin()
				After(limit * 3 / 4)
				f.Expect(c.IsLeader()).To(BeTrue())
				After(20 * limit)
				f.Expect(c.Seen()).To(HaveLen(1))
			}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = limit })
		})
	}
}

func TestCreateBucketMakesAndChangesBuckets(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		js, err := jetstream.New(s.Connect(t))
		g.Expect(err).NotTo(HaveOccurred())
		ctx := context.Background()
		cfg := election.BucketConfig{Name: "E", TTL: TTL, Storage: jetstream.MemoryStorage}

		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "E", History: 5, LimitMarkerTTL: TTL, Description: "ours", Storage: jetstream.MemoryStorage})
		g.Expect(err).NotTo(HaveOccurred())
		bucket, err := election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		status, err := bucket.Status(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		has := status.Config()
		g.Expect(has.History).To(BeEquivalentTo(1))
		g.Expect(has.TTL).To(Equal(TTL))
		g.Expect(has.LimitMarkerTTL).To(Equal(time.Second))
		g.Expect(has.RePublish.Destination).To(HavePrefix("election.E."))
		g.Expect(has.Description).To(Equal("ours"))

		_, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: "E", TTL: TTL})
		g.Expect(err).To(MatchError(election.ErrBucketUnsuitable), "another storage")
		cfg.ChoriaCompatible = true
		_, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).To(MatchError(election.ErrBucketUnsuitable), "markers cannot be taken away")
		cfg.Name = "CHORIA"
		bucket, err = election.CreateBucket(ctx, js, cfg)
		g.Expect(err).NotTo(HaveOccurred())
		status, err = bucket.Status(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.LimitMarkerTTL()).To(BeZero())

		_, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: "no name", TTL: time.Millisecond, Replicas: 2})
		g.Expect(err).To(MatchError(And(ContainSubstring(`"no name"`), ContainSubstring("TTL of 1ms"), ContainSubstring("2 replicas"))))
		_, err = election.CreateBucket(ctx, nil, cfg)
		g.Expect(err).To(MatchError(election.ErrInvalidOption))
	})
}

func TestExpiryMarkerLastsOneSecondAndEndsWithoutNotification(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds of the wall clock")
	}
	t.Parallel()
	for name, storage := range map[string]jetstream.StorageType{"memory": jetstream.MemoryStorage, "file": jetstream.FileStorage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // file storage needs the wall clock
			g, ctx := NewWithT(t), t.Context()
			nc := natstest.StartTCP(t).Connect(t)
			js, err := jetstream.New(nc)
			g.Expect(err).NotTo(HaveOccurred())
			bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "E", TTL: time.Second, Storage: storage})
			g.Expect(err).NotTo(HaveOccurred())
			status, err := bucket.Status(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			republished, err := nc.SubscribeSync(status.Config().RePublish.Destination)
			g.Expect(err).NotTo(HaveOccurred())
			watcher, err := bucket.WatchAll(ctx, jetstream.UpdatesOnly())
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = watcher.Stop() }()

			create := func() error { // as a candidate creates the key that may not read it
				_, err := js.Publish(ctx, "$KV.E.k", []byte("a"), jetstream.WithExpectLastSequencePerSubject(0))
				return err
			}
			g.Expect(create()).To(Succeed())
			g.Eventually(create).WithTimeout(10 * time.Second).WithPolling(10 * time.Millisecond).Should(Succeed())
			var watched, received []string
			for i := range 3 {
				entry := <-watcher.Updates()
				watched = append(watched, fmt.Sprint(entry.Revision(), " ", entry.Operation()))
				m, err := republished.NextMsg(10 * time.Second)
				g.Expect(err).NotTo(HaveOccurred())
				received = append(received, m.Header.Get("Nats-Sequence")+" "+m.Header.Get("Nats-Marker-Reason"))
				if i == 1 {
					g.Expect(time.Since(entry.Created())).To(BeNumerically(">=", time.Second), "the marker was stored that long")
				}
			}
			g.Expect(watched).To(Equal([]string{"1 KeyValuePutOp", "2 KeyValuePurgeOp", "3 KeyValuePutOp"}))
			g.Expect(received).To(Equal([]string{"1 ", "2 MaxAge", "3 "}))
		})
	}
}
