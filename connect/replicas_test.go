package connect_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestBucketThatConnectMakesHasThreeReplicasWhereThereIsRoomForThem(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	three, two, alone := natstest.StartCluster(t, 3).Servers()[0].URL(), natstest.StartCluster(t, 2).Servers()[0].URL(), natstest.StartTCP(t).URL()
	const refused = "Bucket has one replica"
	for _, c := range []struct {
		url           string
		given, actual int
		warns         int
	}{
		{three, 0, 3, 0}, {three, 1, 1, 0}, {two, 0, 1, 1}, {alone, 0, 1, 0},
	} {
		var log buffer
		cfg := connect.Config{Name: "a", Bucket: "E", TTL: 5 * time.Second, URL: c.url, Replicas: c.given, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if c.given != 0 {
			cfg.Bucket = "GIVEN"
		}
		connection, err := connect.Connect(context.Background(), cfg)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(connection.Close)
		stream, err := connection.Bucket.JetStream().Stream(t.Context(), "KV_"+cfg.Bucket)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(stream.CachedInfo().Config.Replicas).To(Equal(c.actual), "%+v", c)
		g.Expect(log.count(refused)).To(Equal(c.warns), "%+v: %s", c, log.String())
	}
}
