package main

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestDrillPassesAndReportsEveryKindOfFailover(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	svg := filepath.Join(t.TempDir(), "drill.svg")
	r, stderr := rehearse(t, cli.ExitOK, 2*time.Second, "--svg", svg)
	g.Expect(r.Candidates).To(Equal(3))
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.Late).To(BeEmpty())
	g.Expect(r.Embedded).To(BeTrue())
	failovers := map[string]float64{}
	for _, f := range r.Faults {
		g.Expect(f.Count).To(Equal(1), f.Kind)
		g.Expect(f.Failover).To(HaveLen(1), f.Kind)
		failovers[f.Kind] = f.Failover[0]
	}
	g.Expect(failovers).To(And(HaveLen(4), HaveKey("handover"), HaveKey("eviction")))
	g.Expect(r.Believed).To(HaveLen(1))
	g.Expect(failovers["first-election"]).To(BeNumerically(">=", r.TTL*3/4), "leadership counts only after the stand-down")
	g.Expect(r.Believed[0]).To(BeNumerically("<", r.TTL+time.Duration(r.LongestGap).Seconds()), "leadership ends with the lease even if the link is cut")
	g.Expect(failovers["crash"]).To(BeNumerically(">", r.Believed[0]))
	g.Expect(r.Terms).To(And(BeNumerically(">=", 4), Equal(len(r.TermNumbers))))
	for i := 1; i < len(r.TermNumbers); i++ {
		g.Expect(r.TermNumbers[i]).To(BeNumerically(">", r.TermNumbers[i-1]))
	}
	g.Expect(stderr).To(ContainSubstring("round 1  crash"))
	g.Expect(stderr).NotTo(ContainSubstring("\x1b"), "stderr is not a terminal")

	drawing, err := os.ReadFile(svg)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(clitest.SVGTexts(g, drawing)).To(ContainElements("candidate-1", "candidate-3", "cut", "delete", MatchRegexp(`^0 ms with two leaders(, no samples for [0-9.]+m?s)?$`)))
}

func TestAnInterruptedDrillRemovesItsBucket(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{Port: natstest.FreePort(t)}) // which no client of another test calls
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	cmd, stdout, _ := command(t, "drill", "-s", e.URL())
	p := followLog(g, cmd)
	p.says("first election")
	g.Eventually(e.Server.NumClients).Should(Equal(4), "each candidate has a connection of its own, and so does the operator")
	g.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	p.says("interrupted; it removed its bucket from the server")
	g.Expect(cmd.Wait()).NotTo(Succeed())
	g.Expect(cmd.ProcessState.ExitCode()).To(Equal(cli.ExitInterrupted))
	g.Expect(stdout.String()).To(BeEmpty())
	account, err := e.Server.LookupAccount("$G")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return account.JetStreamUsage().Streams }).Should(BeZero())
}

// startCampaign starts a candidate for the key jobs.
func startCampaign(t *testing.T, args ...string) *process {
	t.Helper()
	return startCandidate(t, append([]string{"campaign", "jobs", "--json"}, args...)...)
}

// startCandidate starts a command that is a candidate and writes events as JSON.
func startCandidate(t *testing.T, args ...string) *process {
	t.Helper()
	cmd, _, _ := command(t, args...)
	return follow(NewWithT(t), cmd)
}

func TestACampaignOnAnEmbeddedServerLeadsUntilInterrupted(t *testing.T) {
	inRealTime(t)
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	c := startCampaign(t, "--embedded", "--ttl", "10s", "--interval", "500ms", "--name", "web-1")
	first := c.next(events.Started)
	g.Expect(first.TTLS).To(Equal(10.0))
	g.Expect(first.Server).To(HavePrefix("nats://127.0.0.1:"))
	c.next(events.Elected)
	g.Expect(c.next(events.Leading).Token).To(HaveLen(33))
	c.interrupt(events.Lost, events.Released, events.Stopped)
	g.Expect(c.stderr.String()).To(ContainSubstring("election-cli campaign jobs -s " + first.Server))
}

func TestAnInterruptedCampaignHandsOverToAnotherCandidate(t *testing.T) {
	inRealTime(t)
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	server := newFixture(t, 15*time.Second).Server
	one := startCampaign(t, "-s", server.URL(), "--name", "web-1", "--interval", "500ms")
	one.next(events.Started)
	one.next(events.Elected)
	old := one.next(events.Leading)
	two := startCampaign(t, "-s", server.URL(), "--name", "web-2", "--interval", "500ms")
	two.next(events.Started)
	g.Expect(two.next(events.Following).Leader).To(Equal("web-1"))
	one.interrupt(events.Lost, events.Released, events.Stopped)
	g.Expect(two.next(events.Elected).Reason).To(Equal("released"))
	g.Expect(two.next(events.Leading).Token > old.Token).To(BeTrue(), "the fencing token of a later term sorts after")
	two.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestACampaignServesItsMetrics(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	s := startServing(t, "campaign", "jobs", "--embedded", "--metrics", "127.0.0.1:0", "--metrics-namespace", "shop", "--metrics-choria")
	s.g.Eventually(fetch(s.url("Metrics are served"))).Should(And(
		MatchRegexp(`(?m)^shop_election_leader{bucket="LEADER_ELECTION",election="jobs",identity="`+regexp.QuoteMeta(cli.Host())+`"} `),
		MatchRegexp(`(?m)^shop_election_transitions_total{bucket="LEADER_ELECTION",election="jobs"`), MatchRegexp(`(?m)^shop_election_build_info{`),
		MatchRegexp(`(?m)^choria_election_leader{bucket="LEADER_ELECTION",election="jobs"`), MatchRegexp(`(?m)^choria_election_campaigns{`),
		Not(MatchRegexp(`(?m)^election_`)),
		ContainSubstring("go_goroutines"), ContainSubstring("process_start_time_seconds"),
	))
	s.interrupt()
}

func TestTwoSignalsAtOnceCountAsOne(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	c := startCampaign(t, "--embedded", "--ttl", "1m")
	c.next(events.Started)
	c.next(events.Elected)
	for range 2 {
		c.g.Expect(c.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	}
	c.next(events.Lost)
	c.next(events.Released)
	c.next(events.Stopped)
	c.g.Expect(c.wait()).To(Succeed(), c.stderr.String())
}
