package topologies_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/natstest"
)

// leaseTTL outlasts the stalls of a busy host. No test waits for a lease to end: leadership is handed over.
const leaseTTL = 30 * time.Second

// handOverAcross has leadership go from one site to the next and back, in every way that there is, and logs how long each takes.
func handOverAcross(t *testing.T, open map[string]func() *election.Bucket) {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	started := map[string]*election.Election{}
	names := slices.Sorted(maps.Keys(open))
	start := func(name string) *election.Election {
		e, err := election.NewElection(name, "scheduler", open[name](), election.WithSplay(0), election.WithCampaignInterval(200*time.Millisecond), election.WithStandDown(0))
		g.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
		t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		started[name] = e
		return e
	}
	first := start(names[0])
	g.Eventually(first.IsLeader, 20*time.Second).Should(BeTrue())
	for _, name := range names[1:] {
		start(name)
	}
	const rounds = 5
	var transfers, handovers []time.Duration
	for i := range rounds * len(names) {
		next := names[(i+1)%len(names)]
		g.Eventually(func() error { // until the target is ready; it may take over too late on a busy host, or another does
			i := slices.IndexFunc(names, func(name string) bool { return started[name].IsLeader() })
			if i < 0 {
				return errors.New("nobody leads")
			}
			began := time.Now()
			err := started[names[i]].Transfer(ctx, next) // nil if it leads already
			if err == nil {
				transfers = append(transfers, time.Since(began))
			}
			return err
		}, time.Minute).Should(Succeed())
		g.Expect(started[next].IsLeader()).To(BeTrue())
	}
	operator, err := admin.New(open[names[0]]())
	g.Expect(err).NotTo(HaveOccurred())
	leader := names[0] // after whole rounds
	for range rounds {
		g.Eventually(func() string { return started[leader].Status().Notifications }, 10*time.Second).Should(Equal("republish"))
		g.Eventually(func(g Gomega) { // until all others are ready
			candidates, err := operator.Candidates(ctx, "scheduler")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(candidates).To(HaveLen(len(names)))
			for _, c := range candidates[1:] {
				g.Expect(c.Ready).To(BeTrue())
			}
		}, 10*time.Second).Should(Succeed())
		began, next := time.Now(), ""
		g.Expect(started[leader].Resign(ctx)).To(Succeed())
		g.Eventually(func() string {
			for _, name := range names {
				if name != leader && started[name].IsLeader() {
					next = name
				}
			}
			return next
		}, 10*time.Second, 100*time.Microsecond).ShouldNot(BeEmpty())
		handovers = append(handovers, time.Since(began))
		leader = next
	}
	for _, name := range names {
		o, err := admin.New(open[name]())
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func() ([]admin.Candidate, error) { return o.Candidates(ctx, "scheduler") }, 10*time.Second).Should(HaveLen(len(names)), "asked from %s", name)
		g.Eventually(func() error { return o.Resign(ctx, "scheduler") }, 20*time.Second).Should(Succeed()) // the leader may answer too late
		g.Eventually(func() bool {
			return slices.ContainsFunc(names, func(name string) bool { return started[name].IsLeader() })
		}, 10*time.Second).Should(BeTrue())
	}
	slices.Sort(transfers)
	slices.Sort(handovers)
	t.Logf("transfer: median %v, worst %v; handover: median %v, worst %v", transfers[len(transfers)/2], transfers[len(transfers)-1], handovers[len(handovers)/2], handovers[len(handovers)-1])
}

// opener returns what opens the bucket on a connection of its own.
func opener(t *testing.T, url string, bucket string, opts ...nats.Option) func() *election.Bucket {
	return func() *election.Bucket {
		t.Helper()
		g := NewWithT(t)
		nc, err := nats.Connect(url, append([]nats.Option{nats.ReconnectBufSize(-1), nats.Timeout(20 * time.Second)}, opts...)...)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		b, err := election.OpenBucket(t.Context(), js, bucket)
		g.Expect(err).NotTo(HaveOccurred())
		return b
	}
}

func TestElectionSpansGateways(t *testing.T) {
	t.Parallel()
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	const members, others = 3, 2 // of the cluster that keeps the bucket; clusters that reach it by gateways
	ports, remotes := map[string]int{}, []*server.RemoteGatewayOpts{}
	for i := range 1 + others {
		name := fmt.Sprint("c", i)
		ports[name] = natstest.FreePort(t)
		remotes = append(remotes, &server.RemoteGatewayOpts{Name: name, URLs: []*url.URL{{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[name])}}})
	}
	var routes []*url.URL
	var routePorts []int
	for range members {
		routePorts = append(routePorts, natstest.FreePort(t))
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", routePorts[len(routePorts)-1])})
	}
	var servers []*server.Server
	for i := range members + others {
		name := fmt.Sprint("c", max(0, i-members+1))
		opts := server.Options{Gateway: server.GatewayOpts{Name: name, Host: "127.0.0.1", Port: ports[name], Gateways: remotes}}
		opts.Cluster = server.ClusterOpts{Name: name, Host: "127.0.0.1"}
		if i < members {
			opts.JetStream, opts.Cluster.Port, opts.Routes = true, routePorts[i], routes
			opts.Gateway.Gateways = nil // the others find it; with their addresses it would wait for them to elect who leads JetStream
			if i > 0 {
				opts.Gateway.Port = natstest.FreePort(t)
			}
		} else {
			opts.Cluster.Port = natstest.FreePort(t)
		}
		servers = append(servers, natstest.StartNode(t, fmt.Sprint("s", i), &opts))
	}
	for _, s := range servers {
		g.Eventually(s.NumOutboundGateways, 20*time.Second).Should(Equal(others))
	}
	nc, err := nats.Connect(servers[0].ClientURL(), nats.Timeout(20*time.Second))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() bool { return slices.ContainsFunc(servers, (*server.Server).JetStreamIsLeader) }, time.Minute).Should(BeTrue())
	g.Eventually(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "B", TTL: leaseTTL, Replicas: members})
		return err
	}, time.Minute).Should(Succeed(), "once the servers have agreed on who keeps it")
	open := map[string]func() *election.Bucket{}
	for i, s := range servers[members-1:] {
		open[fmt.Sprint("in-c", i)] = opener(t, s.ClientURL(), "B")
	}
	handOverAcross(t, open)
}

func TestElectionWorksOverWebSocket(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	cert, authority := natstest.Certificate(t)
	for scheme, listener := range map[string]server.WebsocketOpts{"ws": {NoTLS: true}, "wss": {TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}} {
		g := NewWithT(t)
		listener.Host, listener.Port = "127.0.0.1", natstest.FreePort(t)
		s := natstest.StartNode(t, scheme, &server.Options{JetStream: true, Websocket: listener})
		nc, err := nats.Connect(s.ClientURL(), nats.Timeout(20*time.Second))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = election.CreateBucket(t.Context(), js, election.BucketConfig{Name: "B", TTL: leaseTTL})
		g.Expect(err).NotTo(HaveOccurred())
		web := fmt.Sprintf("%s://127.0.0.1:%d", scheme, listener.Port)
		for name, urls := range map[string][]string{"all": {web, web, web}, "both": {web, web, s.ClientURL()}, "TCP, to compare": {s.ClientURL(), s.ClientURL(), s.ClientURL()}} {
			t.Run(scheme+", "+name, func(t *testing.T) {
				open := map[string]func() *election.Bucket{}
				for i, url := range urls {
					var opts []nats.Option
					if strings.HasPrefix(url, "wss") {
						opts = append(opts, nats.RootCAs(authority))
					}
					open[fmt.Sprint("c", i)] = opener(t, url, "B", opts...)
				}
				handOverAcross(t, open)
			})
		}
	}
}
