package natstest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// Cluster is a number of servers that replicate their streams. The routes between
// them are links, so that a test can crash a server.
type Cluster struct {
	servers []*Server
	routes  []*route // one each way between each two servers
}

// route is where one server of a cluster dials another.
type route struct {
	*faultproxy.Link
	from, to string
}

// StartCluster runs n servers, named n1, n2 and so on, with file storage on the
// loopback interface, and returns when all take part. Outside bubbles only: it takes
// seconds. Do not call the methods of a Cluster concurrently.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	names, ports := make([]string, n), make([]int, n)
	for i := range n {
		names[i], ports[i] = fmt.Sprintf("n%d", i+1), FreePort(t)
	}
	for i := range n {
		var routes []*url.URL
		for j := range n {
			if i == j {
				continue
			}
			r := &route{faultproxy.New(nil), names[i], names[j]}
			t.Cleanup(r.Close)
			address, err := r.Listen(fmt.Sprintf("127.0.0.1:%d", ports[j]))
			if err != nil {
				t.Fatalf("natstest: route from %s to %s: %v", r.from, r.to, err)
			}
			c.routes = append(c.routes, r)
			routes = append(routes, &url.URL{Scheme: "nats", Host: address})
		}
		c.servers = append(c.servers, start(t, jetstream.FileStorage, clusterOptions(t, names[i], ports[i], routes)))
	}
	c.await(t, "cluster", c.ready)
	return c
}

func clusterOptions(t testing.TB, name string, routePort int, routes []*url.URL) server.Options {
	return server.Options{
		ServerName: name,
		Host:       "127.0.0.1",
		Port:       FreePort(t),
		Routes:     routes,
		Cluster: server.ClusterOpts{
			Name: "natstest",
			Host: "127.0.0.1",
			Port: routePort,
			// Servers advertise their addresses to each other. With the true
			// address, they would connect around the routes of this package.
			Advertise: "127.0.0.1:1",
			// Clients stay with the servers that they know.
			NoAdvertise: true,
			// One connection per route, so that ready can count them.
			PoolSize: -1,
		},
	}
}

// Servers returns all servers, running or not.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// URL returns the addresses for clients of the servers, as a list.
func (c *Cluster) URL() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.URL())
	}
	return strings.Join(all, ",")
}

// Connect opens a client connection to any of the servers. When that server stops, the
// client goes to another. Use Server.Connect for a connection to a certain server.
func (c *Cluster) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, c.URL(), opts...)
}

// Bucket creates the bucket BucketName, or opens it if it exists, as Server.Bucket does,
// replicated to all servers.
func (c *Cluster) Bucket(t testing.TB, nc *nats.Conn, ttl time.Duration, opts ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	replicas := func(cfg *jetstream.KeyValueConfig) { cfg.Replicas = len(c.servers) }
	opts = append([]func(*jetstream.KeyValueConfig){replicas}, opts...)
	kv := c.servers[0].bucket(t, nc, ttl, clusterPatience, opts...)
	c.StreamLeader(t, kv.Bucket())
	return kv
}

// StreamLeader returns the name of the server that leads the bucket's stream, among the
// servers that run. It waits until one of them is elected.
func (c *Cluster) StreamLeader(t testing.TB, bucket string) string {
	t.Helper()
	var name string
	c.await(t, "leader of the stream of bucket "+bucket, func() error {
		for _, s := range c.running() {
			if s.leadsStream(bucket) {
				name = s.Name()
				return nil
			}
		}
		return errors.New("no leader")
	})
	return name
}

// Crash stops a server without notice to the others, as if it had been killed. They
// must find out and elect new leaders, which takes seconds. With Server.Stop, in
// contrast, the server steps down from everything that it leads before it ends.
func (c *Cluster) Crash(name string) {
	for _, r := range c.routesOf(name) {
		r.Cut()
		r.Disconnect()
	}
	for _, s := range c.servers {
		if s.Name() == name {
			s.Stop()
		}
	}
}

// Delay slows down the network between a server and the others, until it is called with 0: then what is late is delivered at once.
func (c *Cluster) Delay(name string, d time.Duration) {
	for _, r := range c.routesOf(name) {
		if r.DelayReplies(d); d == 0 {
			r.Heal()
		}
	}
}

// routesOf returns the routes from and to a server.
func (c *Cluster) routesOf(name string) (routes []*route) {
	for _, r := range c.routes {
		if r.from == name || r.to == name {
			routes = append(routes, r)
		}
	}
	return routes
}

// running returns the servers that run.
func (c *Cluster) running() (servers []*Server) {
	for _, s := range c.servers {
		if s.isRunning() {
			servers = append(servers, s)
		}
	}
	return servers
}

// ready returns nil once the running servers have routes to each other, are up to date,
// and have one leader that knows all of them.
func (c *Cluster) ready() error {
	servers := c.running()
	var leaders []*Server
	for _, s := range servers {
		if err := s.hasRoutes(len(servers) - 1); err != nil {
			return err
		}
		if !s.isCurrent() {
			return fmt.Errorf("server %s is not up to date", s.Name())
		}
		if s.leadsCluster() {
			leaders = append(leaders, s)
		}
	}
	if len(leaders) != 1 {
		return fmt.Errorf("%d servers lead", len(leaders))
	}
	if known := leaders[0].knownPeers(); known < len(servers) {
		return fmt.Errorf("the leader knows of %d servers", known)
	}
	return nil
}

func (c *Cluster) await(t testing.TB, what string, check func() error) {
	t.Helper()
	poll(t, clusterPatience, what, func(context.Context) error { return check() })
}
