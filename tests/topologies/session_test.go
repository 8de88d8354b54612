package topologies_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

func TestSessionsSpanALeafNode(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	for name, domain := range map[string]string{"without JetStream": "", "with a domain of its own": "leaf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			main, leaf := leafNode(t, domain)
			start := func(name, url string) (*session.Session, *election.Election) {
				nc, err := nats.Connect(url, nats.Timeout(20*time.Second))
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(nc.Close)
				js, err := jetstream.NewWithDomain(nc, "main")
				g.Expect(err).NotTo(HaveOccurred())
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				s, err := session.Open(ctx, js, session.Config{Bucket: "S", Name: name, TTL: leaseTTL / 3})
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(func() { _ = s.Close(context.Background()) })
				e, err := s.Election("k")
				g.Expect(err).NotTo(HaveOccurred())
				go func() { _ = e.Start(context.Background()) }()
				return s, e
			}
			atLeaf, first := start("leaf", leaf)
			g.Eventually(first.IsLeader, 20*time.Second).Should(BeTrue())
			_, second := start("main", main)
			transfer := func(to string) func() error { // by the one that leads: an earlier try may have been late
				return func() error {
					if first.IsLeader() {
						return first.Transfer(t.Context(), to)
					}
					return second.Transfer(t.Context(), to)
				}
			}
			g.Eventually(transfer("main"), time.Minute).Should(Succeed())
			g.Eventually(second.IsLeader, 20*time.Second).Should(BeTrue())
			g.Eventually(transfer("leaf"), time.Minute).Should(Succeed())
			g.Eventually(first.IsLeader, 20*time.Second).Should(BeTrue())
			g.Expect(atLeaf.Close(t.Context())).To(Succeed())
			g.Eventually(second.IsLeader, 20*time.Second).Should(BeTrue())
		})
	}
}
