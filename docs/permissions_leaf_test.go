package docs_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// onLeaf returns a block for a leaf node of a hub whose JetStream is in the domain "hub".
func onLeaf(block string) string {
	publish, subscribe, _ := strings.Cut(block, "subscribe = [")
	publish = strings.NewReplacer(`"$JS.API.`, `"$JS.hub.API.`, `"$KV.`, `"$JS.hub.API.$KV.`).Replace(publish)
	subscribe = regexp.MustCompile(`"\$KV\.ELECTIONS\.[^"]+"`).ReplaceAllLiteralString(subscribe, `"$JS.hub.API.$KV.ELECTIONS.>"`)
	return publish + "subscribe = [" + subscribe
}

func TestBlocksWorkOnALeafNodeWithTheDomainOfTheHub(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	page := blocks(t)
	for role := range users {
		page[role] = onLeaf(with(page[role], linesOf(t, page[role]), needs("list with one request")...))
	}
	for role, purposes := range map[string][]string{
		"CANDIDATE": {"open the bucket", "campaign", "take over at once", "transfer", "be notified", "name successors", "answer operators", "be found by nats micro"},
		"OPERATOR":  {"list candidates", "resign", "transfer", "evict", "check"},
		"OBSERVER":  {"see the leader", "observe", "watch for long"},
		"MONITOR":   {"check", "list with one request", "find two leaders", "find a full account"},
	} {
		for _, purpose := range purposes {
			t.Run(role+"/"+purpose, func(t *testing.T) {
				t.Parallel()
				works := func() string { return runOnLeaf(t, configOf(page), checks[role][purpose]) }
				NewWithT(t).Eventually(works, time.Minute).Should(BeEmpty(), "though candidates of a busy host may be late to answer once")
			})
		}
	}
}

// runOnLeaf runs a check whose users are those of a leaf node; root is on the hub.
func runOnLeaf(t *testing.T, config string, check func(b *bench)) string {
	t.Helper()
	g := NewWithT(t)
	port := natstest.FreePort(t)
	hub := natstest.StartNode(t, "hub", &server.Options{JetStream: true, JetStreamDomain: "hub", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: port}})
	opts := &server.Options{}
	g.Expect(opts.ProcessConfigString(config)).To(Succeed())
	remote := &server.RemoteLeafOpts{URLs: []*url.URL{{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)}}}
	opts.LeafNode = server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{remote}}
	leaf := natstest.StartNode(t, "leaf", opts)
	g.Eventually(leaf.NumLeafNodes, 10*time.Second).Should(Equal(1))
	const ttl, standDown = 8 * time.Second, 6 * time.Second
	b := &bench{T: t, ttl: ttl, late: standDown - 2*atOnce} // what happens at once comes before a stand-down
	b.options = []election.Option{election.WithCampaignInterval(time.Second), election.WithStandDown(standDown)}
	b.open = func(nc *nats.Conn, opts ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
		return jetstream.NewWithDomain(nc, "hub", opts...)
	}
	b.connect = func(user string, more ...nats.Option) *nats.Conn {
		to := leaf.ClientURL()
		if user == root {
			to = hub.ClientURL()
		}
		nc, err := nats.Connect(to, append([]nats.Option{
			inboxOf(user), nats.UserInfo(user, password), nats.Timeout(20 * time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		}, more...)...)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		return nc
	}
	return b.try(check)
}
