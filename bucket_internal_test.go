package election

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natstest"
)

// dated is a JetStream context as it is on servers before 2.11, where the client refuses what needs expiry markers.
type dated struct{ jetstream.JetStream }

func (d dated) CreateKeyValue(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	if cfg.LimitMarkerTTL != 0 {
		return nil, jetstream.ErrLimitMarkerTTLNotSupported
	}
	return d.JetStream.CreateKeyValue(ctx, cfg)
}

func (d dated) UpdateKeyValue(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	if cfg.LimitMarkerTTL != 0 {
		return nil, jetstream.ErrLimitMarkerTTLNotSupported
	}
	return d.JetStream.UpdateKeyValue(ctx, cfg)
}

func onDatedServer(t *testing.T, f func(t *testing.T, g *WithT, js jetstream.JetStream)) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		js, err := jetstream.New(natstest.Start(t).Connect(t))
		g.Expect(err).NotTo(HaveOccurred())
		f(t, g, dated{js})
	})
}

func TestBucketIsMadeWithoutMarkersWhereTheServerKnowsNone(t *testing.T) {
	onDatedServer(t, func(t *testing.T, g *WithT, js jetstream.JetStream) {
		cfg := BucketConfig{Name: "E", TTL: 10 * time.Second, Storage: jetstream.MemoryStorage}
		for _, ttl := range []time.Duration{10 * time.Second, 20 * time.Second} { // it is made, and then brought to another TTL
			cfg.TTL = ttl
			bucket, err := CreateBucket(t.Context(), js, cfg)
			g.Expect(err).NotTo(HaveOccurred())
			status, err := bucket.Status(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.TTL()).To(Equal(ttl))
			g.Expect(status.LimitMarkerTTL()).To(BeZero())
			g.Expect(status.Config().RePublish).NotTo(BeNil())
		}
	})
}

func TestConnectMakesABucketWithoutMarkersWhereTheServerKnowsNoneAndSaysWhatIsLost(t *testing.T) {
	onDatedServer(t, func(t *testing.T, g *WithT, js jetstream.JetStream) {
		var log bytes.Buffer
		cfg := Config{Name: "a", Key: "k", Bucket: "E", TTL: 10 * time.Second}.filled()
		d := &dialler{Config: cfg, log: slog.New(slog.NewTextHandler(&log, nil)), nc: js.Conn(), js: js}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		bucket, err := d.await(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bucket.Bucket()).To(Equal("E"))
		g.Expect(log.String()).To(ContainSubstring("code=no-markers"))
		g.Expect(log.String()).To(ContainSubstring("400ms longer"))
	})
}

func TestBucketThatCannotBeMadeEvenWithoutMarkersIsUnsuitable(t *testing.T) {
	onDatedServer(t, func(t *testing.T, g *WithT, js jetstream.JetStream) {
		_, err := CreateBucket(t.Context(), js, BucketConfig{Name: "E", TTL: 10 * time.Second, Replicas: 3, Storage: jetstream.MemoryStorage})
		g.Expect(err).To(MatchError(ErrBucketUnsuitable), "there is no cluster")
	})
}

func TestRemedyForMissingMarkersWorksOnTheServerThereIs(t *testing.T) {
	g := NewWithT(t)
	for version, advice := range map[string]string{
		"2.10.27":       "upgrade the servers, of which this one is 2.10.27, to 2.11 or newer",
		"1.4.1":         "upgrade",
		"2.9.0-beta.1":  "upgrade",
		"2.11.0":        "let CreateBucket bring the bucket to it",
		"2.15.2":        "let CreateBucket bring the bucket to it",
		"3.0.0-RC.1":    "let CreateBucket bring the bucket to it",
		"":              "2.11 or newer",
		"not a version": "2.11 or newer",
	} {
		g.Expect(markerRemedy(version)).To(ContainSubstring(advice), version)
		g.Expect(markerRemedy(version)).To(ContainSubstring("CreateBucket"), version)
	}
}
