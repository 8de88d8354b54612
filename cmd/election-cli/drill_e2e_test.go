package main

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// streamsOf returns the names of all streams on a server.
func streamsOf(t *testing.T, s *cli.Client) (names []string) {
	t.Helper()
	l := s.JetStream.StreamNames(t.Context())
	for name := range l.Name() {
		names = append(names, name)
	}
	NewWithT(t).Expect(l.Err()).NotTo(HaveOccurred())
	return names
}

func TestADrillDoesNotDisturbElectionsInOtherBuckets(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithBucket(t, 15*time.Second)
	bucket, err := s.OpenBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	var won, lost atomic.Int32
	candidate := func(name string) *election.Election {
		c, err := election.NewElection(name, "scheduler", bucket, election.WithSplay(0), election.WithCampaignInterval(500*time.Millisecond),
			election.OnWon(func() { won.Add(1) }), election.OnLost(func() { lost.Add(1) }))
		g.Expect(err).NotTo(HaveOccurred())
		done := make(chan error, 1)
		go func() { done <- c.Start(t.Context()) }()
		t.Cleanup(func() { c.Stop(); g.Expect(<-done).To(Succeed()) })
		return c
	}
	leader := candidate("staging-1")
	g.Eventually(leader.IsLeader).WithTimeout(clitest.Timeout).Should(BeTrue())
	term, _ := leader.Term()
	follower := candidate("staging-2")
	g.Eventually(func() *election.Leader { return follower.Status().Leader }).WithTimeout(clitest.Timeout).ShouldNot(BeNil())
	before, err := leader.Leader(t.Context())
	g.Expect(err).NotTo(HaveOccurred())

	// The drill must create its own bucket even if --bucket names this one.
	code, stdout, stderr := runBinary(t, "drill", "-s", e.URL(), "--bucket", cli.DefaultBucket, "--candidates", "2", "--rounds", "1", "--ttl", "1s", "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r drill.Report
	g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	g.Expect(r.Embedded).To(BeFalse())
	g.Expect(r.Terms).To(BeNumerically(">=", 4), "the drill injected all faults")

	g.Expect(term.Valid()).To(BeTrue(), "the same term continues")
	g.Expect(won.Load()).To(BeEquivalentTo(1))
	g.Expect(lost.Load()).To(BeZero())
	after, err := leader.Leader(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after.Term).To(Equal(before.Term))
	g.Expect(after.Instance).To(Equal(before.Instance))
	g.Expect(after.Revision).To(BeNumerically(">", before.Revision), "the leader renewed during the drill")
	g.Expect(after.Revision-before.Revision).To(BeNumerically("<=", r.DurationS/0.5+3), "only the leader wrote to the bucket")
	g.Expect(streamsOf(t, s)).To(ConsistOf("KV_" + cli.DefaultBucket))
}

func TestADrillThatFailsRemovesItsBucket(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const connections = 2 // one for the test, one for the drill's operator, none for its candidates
	srv := natstest.StartNode(t, "server", &server.Options{JetStream: true, MaxConn: connections})
	s, err := (&cli.ConnectionFlags{Server: srv.ClientURL(), Timeout: clitest.Timeout}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Conn.Close)

	var created atomic.Int32
	_, err = s.Conn.Subscribe("$JS.EVENT.ADVISORY.STREAM.CREATED.*", func(*nats.Msg) { created.Add(1) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Conn.Flush()).To(Succeed())
	g.Eventually(func(g Gomega) { // a client of an earlier test, whose server had the same port, may take the operator's connection
		code, stdout, stderr := runBinary(t, "drill", "-s", srv.ClientURL())
		g.Expect(code).To(Equal(cli.ExitFailure), stdout)
		g.Expect(strings.ToLower(stderr)).To(ContainSubstring("maximum connections"))
		g.Expect(s.Conn.Flush()).To(Succeed())
		g.Expect(created.Load()).To(BeNumerically(">", 0), "the drill had created its bucket")
	}).WithTimeout(clitest.Timeout).Should(Succeed())
	g.Expect(streamsOf(t, s)).To(BeEmpty())
}
