package matrix

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// ground is a server with a bucket.
type ground struct {
	*testing.T
	*WithT
	version
	server *natstest.Program
	js     jetstream.JetStream
	bucket *election.Bucket
}

func newGround(t *testing.T, v version, cfg election.BucketConfig, config ...string) *ground {
	t.Helper()
	g := &ground{T: t, WithT: NewWithT(t), version: v, server: natstest.StartProgram(t, v.program, config...)}
	_, nc := g.connect()
	g.Expect(nc.ConnectedServerVersion()).To(Equal(v.exact))
	g.js = g.jetStream(nc)
	cfg.Name = bucketName
	var err error
	g.bucket, err = election.CreateBucket(t.Context(), g.js, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	return g
}

// connect returns a connection that suits elections, over a link that a test can cut.
func (g *ground) connect(opts ...nats.Option) (*faultproxy.Link, *nats.Conn) {
	g.Helper()
	l := faultproxy.New(func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(g.server.URL(), "nats://")) })
	g.Cleanup(l.Close)
	return l, natstest.Connect(g.T, l, append([]nats.Option{nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(time.Second)}, opts...)...)
}

func (g *ground) jetStream(nc *nats.Conn) jetstream.JetStream {
	g.Helper()
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	return js
}

// candidate is a candidate with a link of its own.
type candidate struct {
	*election.Election
	link *faultproxy.Link
	js   jetstream.JetStream
}

// candidateOn starts a candidate that renews so often that a busy host ends no lease. It stands down for as long as with the default interval.
func (g *ground) candidateOn(name string, l *faultproxy.Link, js jetstream.JetStream, opts ...election.Option) *candidate {
	g.Helper()
	bucket, err := election.OpenBucket(g.Context(), js, bucketName)
	g.Expect(err).NotTo(HaveOccurred())
	return g.begin(name, l, js, bucket, append([]election.Option{election.WithCampaignInterval(ttl / 8), election.WithStandDown(ttl * 3 / 4)}, opts...)...)
}

func (g *ground) begin(name string, l *faultproxy.Link, js jetstream.JetStream, bucket jetstream.KeyValue, opts ...election.Option) *candidate {
	g.Helper()
	e, err := election.NewElection(name, key, bucket, append([]election.Option{election.WithSplay(0)}, opts...)...)
	g.Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() { _ = e.Start(context.Background()); close(done) }()
	g.Cleanup(func() { e.Stop(); l.Heal(); <-done })
	return &candidate{e, l, js}
}

// awaitLeader returns how long it takes from now until a candidate leads.
func (g *ground) awaitLeader(c *candidate) time.Duration {
	g.Helper()
	began := time.Now()
	g.Eventually(c.IsLeader).WithTimeout(timeout).WithPolling(time.Millisecond).Should(BeTrue())
	return time.Since(began)
}

// awaitNotified waits until a leader can name the candidate as a successor.
func (g *ground) awaitNotified(c *candidate) {
	g.Helper()
	g.Eventually(func() *election.Leader { return c.Status().Leader }).WithTimeout(timeout).ShouldNot(BeNil())
}
