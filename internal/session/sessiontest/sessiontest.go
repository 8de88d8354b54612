// Package sessiontest has what the tests of a mutex and of a semaphore need.
package sessiontest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/natstest"
)

// TTL is the TTL of the bucket.
const TTL = 10 * time.Second

// Env is a server on virtual time, for holders that each reach the server over a link of their own.
type Env struct {
	*testing.T
	*gomega.WithT
	Server *natstest.Server
}

// OnVirtualTime runs f with an Env.
func OnVirtualTime(t *testing.T, f func(e *Env)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		f(&Env{T: t, WithT: gomega.NewWithT(t), Server: natstest.Start(t)})
	})
}

// Connect returns the bucket as one more holder reaches it, and the holder's link.
func (e *Env) Connect() (*election.Bucket, *faultproxy.Link) {
	e.Helper()
	l := e.Server.Link(e.T)
	nc := natstest.Connect(e.T, l)
	e.Cleanup(func() { time.Sleep(TTL) }) // sessions end before their connection is closed
	js, err := jetstream.New(nc)
	e.Expect(err).NotTo(gomega.HaveOccurred())
	e.Server.Bucket(e.T, nc, TTL, natstest.WithMarkers)
	bucket, err := election.OpenBucket(context.Background(), js, natstest.BucketName)
	e.Expect(err).NotTo(gomega.HaveOccurred())
	return bucket, l
}
