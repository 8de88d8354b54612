package bench

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// cluster is servers whose routes are direct, as the peers of etcd are. Those of natstest.Cluster lead through links,
// which can be cut but take time.
type cluster struct {
	urls      []string
	connected int // connections made
}

// startCluster runs so many servers within this process and returns when they replicate buckets.
func startCluster(tb testing.TB, n int) *cluster {
	tb.Helper()
	var routes []*url.URL
	var options []*server.Options
	for i := range n {
		port := natstest.FreePort(tb)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		options = append(options, &server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: natstest.FreePort(tb), JetStream: true, StoreDir: tb.TempDir(),
			NoLog: true, NoSigs: true, Cluster: server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: port},
		})
	}
	c := &cluster{}
	for _, o := range options {
		o.Routes = routes
		s, err := server.NewServer(o)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		s.Start()
		if !s.ReadyForConnections(patience) {
			tb.Fatal("a server is not ready")
		}
		c.urls = append(c.urls, s.ClientURL())
	}
	c.await(tb, n)
	return c
}

// await waits until a bucket with so many replicas can be made.
func (c *cluster) await(tb testing.TB, replicas int) {
	tb.Helper()
	f := &fleet{TB: tb, servers: c}
	js := f.jetStream(c.Connect(tb))
	f.await("cluster", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "READY", TTL: time.Minute, Replicas: replicas})
		return err == nil
	})
}

// Connect opens a connection to the next of the servers, so that those of any three candidates lie in all three, of which one leads the
// stream; the benchmark's Cleanup closes it.
func (c *cluster) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	first := c.connected % len(c.urls)
	c.connected++
	urls := slices.Concat(c.urls[first:], c.urls[:first])
	return connect(tb, strings.Join(urls, ","), append(opts, nats.DontRandomize())...)
}

// connect opens a connection that reconnects for ever and prints nothing.
func connect(tb testing.TB, urls string, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	quiet := []nats.Option{nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	nc, err := nats.Connect(urls, append(quiet, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}
