// Package holdtest is what the tests of a lock and of a semaphore have in common.
package holdtest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// TTL is that of the bucket.
const TTL = 10 * time.Second

// Bench is a server on virtual time, for holders that each have a link to it of their own.
type Bench struct {
	*testing.T
	*gomega.WithT
	Server *natstest.Server
}

// OnVirtualTime runs f with a bench of its own.
func OnVirtualTime(t *testing.T, f func(b *Bench)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		f(&Bench{T: t, WithT: gomega.NewWithT(t), Server: natstest.Start(t)})
	})
}

// Connect returns the bucket and JetStream as one more holder reaches them, and the link over which it does.
func (b *Bench) Connect() (jetstream.KeyValue, jetstream.JetStream, *link.Link) {
	b.Helper()
	l := b.Server.Link(b.T)
	nc := natstest.Connect(b.T, l)
	b.Cleanup(func() { time.Sleep(TTL) }) // before that is closed all that stands on it has wound up
	js, err := jetstream.New(nc)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return b.Server.Bucket(b.T, nc, TTL, natstest.WithMarkers), js, l
}
