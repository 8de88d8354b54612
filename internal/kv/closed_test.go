package kv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

// A write whose connection is closed before the answer comes.
func TestWriteUnderWayWhenItsConnectionIsClosedMayHaveBeenApplied(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		l := s.Link(t)
		nc := natstest.Connect(t, l)
		bucket := s.Bucket(t, nc, 10*time.Second)
		l.StallReplies()
		failed := make(chan error, 1)
		go func() {
			_, err := bucket.Create(context.Background(), "k", []byte("v"))
			failed <- err
		}()
		time.Sleep(time.Second)
		nc.Close()
		err := <-failed
		g.Expect(err).To(MatchError(nats.ErrConnectionClosed))
		_, found := s.Bucket(t, s.Connect(t), 10*time.Second).Get(context.Background(), "k")
		g.Expect(found).NotTo(HaveOccurred(), "it was applied")
		g.Expect(kv.Classify(err)).To(Equal(kv.Unknown))
	})
}
