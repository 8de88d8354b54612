package kv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

// noFolder is a JetStream whose server removes the folder of a stream as often as this says while the stream is made.
type noFolder struct {
	jetstream.JetStream
	times int
}

func (j *noFolder) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	if j.times--; j.times >= 0 {
		return nil, &jetstream.APIError{Code: 500, ErrorCode: 10049, Description: "error creating store for stream"}
	}
	return j.JetStream.CreateStream(ctx, cfg)
}

// A test of the command found it: the fix of a sealed bucket removes it, and makes it again.
func TestBucketIsMadeWhileTheServerTidiesUpAfterTheLastStream(t *testing.T) {
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	js, err := jetstream.New(s.Connect(t))
	g.Expect(err).NotTo(HaveOccurred())
	config := kv.Config{Name: "E", TTL: time.Minute, Replicas: 1, Storage: jetstream.FileStorage}
	g.Expect(config.Create(t.Context(), &noFolder{js, 2})).To(MatchError(ContainSubstring("error creating store")), "that does not go away")
	g.Expect(config.Create(t.Context(), &noFolder{js, 1})).To(Succeed())
}
