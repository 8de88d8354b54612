package topologies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
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

func TestElectionSpansALeafNode(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	for name, domain := range map[string]string{"without JetStream": "", "with a domain of its own": "leaf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx := NewWithT(t), t.Context()
			main, leaf := leafNode(t, domain)
			connect := func(url string) (nc *nats.Conn, js jetstream.JetStream) {
				nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.Timeout(20*time.Second))
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(nc.Close)
				js, err = jetstream.New(nc)
				if url == leaf {
					js, err = jetstream.NewWithDomain(nc, "main")
				}
				g.Expect(err).NotTo(HaveOccurred())
				return nc, js
			}
			operator, js := connect(main)
			_, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "B", TTL: leaseTTL})
			g.Expect(err).NotTo(HaveOccurred())
			written, err := operator.SubscribeSync("election.B.>")
			g.Expect(err).NotTo(HaveOccurred())
			attempts, err := operator.SubscribeSync("$KV.B.scheduler")
			g.Expect(err).NotTo(HaveOccurred())

			start := func(name, url string, more ...func(jetstream.JetStream) election.Option) *election.Election {
				_, js := connect(url)
				opts := []election.Option{election.WithSplay(0), election.WithCampaignInterval(200 * time.Millisecond), election.WithStandDown(0)}
				for _, option := range more {
					opts = append(opts, option(js))
				}
				bucket, err := js.KeyValue(ctx, "B")
				g.Expect(err).NotTo(HaveOccurred())
				e, err := election.NewElection(name, "scheduler", bucket, opts...)
				g.Expect(err).NotTo(HaveOccurred())
				go func() { _ = e.Start(context.Background()) }()
				t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
				return e
			}
			joined := func(name string) { // waits for the second attempt of a candidate
				t.Helper()
				for n := 0; n < 2; {
					m, err := attempts.NextMsg(10 * time.Second)
					g.Expect(err).NotTo(HaveOccurred(), name)
					if strings.Contains(string(m.Data), `"name":"`+name+`"`) {
						n++
					}
				}
			}
			type record struct {
				Successor  string    `json:"successor"`
				Released   time.Time `json:"released"`
				Successors []string  `json:"successors"`
			}
			next := func(what string, is func(record) bool) record { // returns the next record of which that is so
				t.Helper()
				for end := time.Now().Add(time.Minute); ; {
					m, err := written.NextMsg(time.Until(end))
					g.Expect(err).NotTo(HaveOccurred(), what)
					var r record
					g.Expect(json.Unmarshal(m.Data, &r)).To(Succeed())
					if is(r) {
						return r
					}
				}
			}
			released := func(r record) bool { return !r.Released.IsZero() }
			handsOver := func(from, to *election.Election) {
				t.Helper()
				next("the leader knows who is to take over", func(r record) bool { return r.Successor == to.Status().Instance })
				began := time.Now()
				from.Stop()
				g.Eventually(to.IsLeader, 20*time.Second, time.Millisecond).Should(BeTrue())
				t.Logf("%s: stopped, %s led after %v", from.Status().Name, to.Status().Name, time.Since(began))
				g.Expect(next("release", released).Successors).To(HaveExactElements(to.Status().Name))
			}

			leaf1 := start("leaf-1", leaf, election.WithJetStream)
			g.Eventually(leaf1.IsLeader, 10*time.Second).Should(BeTrue())
			// It is stopped after it has led, before it campaigns again: then no leader names it any more.
			seldom := func(jetstream.JetStream) election.Option { return election.WithCampaignInterval(5 * time.Second) }
			leaf2 := start("leaf-2", leaf, election.WithJetStream, seldom)
			joined("leaf-2")
			handsOver(leaf1, leaf2)
			g.Eventually(func() string { return leaf2.Status().Notifications }, 10*time.Second).Should(Equal("republish"))

			main1 := start("main-1", main, election.WithJetStream)
			joined("main-1")
			g.Eventually(func() error { return leaf2.Transfer(ctx, "main-1") }, 20*time.Second).Should(Succeed()) // it may answer too late
			g.Expect(main1.IsLeader()).To(BeTrue())
			g.Expect(next("release", released).Successors).To(HaveExactElements("main-1"))
			leaf2.Stop()
			leaf3 := start("leaf-3", leaf, election.WithJetStream)
			joined("leaf-3")
			handsOver(main1, leaf3)

			main2 := start("main-2", main, election.WithJetStream)
			joined("main-2")
			for _, url := range []string{main, leaf} {
				_, js := connect(url)
				bucket, err := js.KeyValue(ctx, "B")
				g.Expect(err).NotTo(HaveOccurred())
				o, err := admin.New(bucket, election.WithJetStream(js))
				g.Expect(err).NotTo(HaveOccurred())
				names := func(g Gomega) (names []string) {
					candidates, err := o.Candidates(ctx, "scheduler")
					g.Expect(err).NotTo(HaveOccurred())
					for _, c := range candidates {
						names = append(names, c.Name)
					}
					return names
				}
				g.Eventually(names, 20*time.Second).Should(ConsistOf("leaf-3", "main-2"))
				g.Eventually(func() error { return o.Transfer(ctx, "scheduler", "main-2") }, 20*time.Second).Should(Succeed())
				g.Expect(main2.IsLeader()).To(BeTrue())
				l, err := main2.Leader(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.Name).To(Equal("main-2"))
				l, err = leaf3.Leader(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.Name).To(Equal("main-2"))
				g.Eventually(func() error { return main2.Transfer(ctx, "leaf-3") }, 20*time.Second).Should(Succeed()) // it has been a leader until now
				g.Expect(leaf3.IsLeader()).To(BeTrue())
			}

			watcher := start("watcher", leaf)
			joined("watcher")
			g.Eventually(func() string { return watcher.Status().Notifications }, 10*time.Second).Should(Equal("watch"))
			for _, e := range []*election.Election{main2, leaf3} {
				e.Stop()
			}
			g.Eventually(watcher.IsLeader, 20*time.Second, time.Millisecond).Should(BeTrue())
		})
	}
}

// leafNode runs a server with JetStream in the domain "main" and a leaf node of it, with JetStream in a domain of its own if one is
// given. It returns where clients reach them.
func leafNode(t *testing.T, domain string) (mainURL, leafURL string) {
	g := NewWithT(t)
	port := natstest.FreePort(t)
	main := natstest.StartNode(t, "main", &server.Options{JetStream: true, JetStreamDomain: "main", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: port}})
	remote := &server.RemoteLeafOpts{URLs: []*url.URL{{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)}}}
	leaf := natstest.StartNode(t, "leaf", &server.Options{JetStream: domain != "", JetStreamDomain: domain, LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{remote}}})
	g.Eventually(leaf.NumLeafNodes, 10*time.Second).Should(Equal(1))
	g.Eventually(main.NumLeafNodes, 10*time.Second).Should(Equal(1))
	return main.ClientURL(), leaf.ClientURL()
}
