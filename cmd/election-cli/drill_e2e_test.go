package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
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

// rehearse runs a drill of one round, which must end with the exit code, and returns its report and stderr. Like drillWith it repeats a drill that failed by
// the time limits alone on a host that is too busy for them, with twice the TTL. It leaves out a TTL that is the default.
func rehearse(t *testing.T, code int, ttl time.Duration, args ...string) (r drill.Report, stderr string) {
	t.Helper()
	g := NewWithT(t)
	for tries := 1; ; tries, ttl = tries+1, 2*ttl {
		line := append([]string{"drill", "--rounds", "1", "--json"}, args...)
		if ttl > 2*time.Second {
			line = append(line, "--ttl", ttl.String())
		}
		cmd, stdout, log := command(t, line...)
		_ = cmd.Run()
		r = drill.Report{}
		if json.Unmarshal(stdout.Bytes(), &r) == nil {
			expectSchema(g, "drill", stdout.String())
			late := len(r.Late) > 0 && time.Duration(r.LongestGap) > busyGap
			if late && r.Overlap == 0 && !strings.Contains(log.String(), "led after a term") && tries < 3 {
				t.Logf("this host is too busy for a TTL of %v: the longest pause was %v, %s", ttl, time.Duration(r.LongestGap), r.FailureReason())
				continue
			}
		}
		g.Expect(cmd.ProcessState.ExitCode()).To(Equal(code), log.String()+stdout.String())
		g.Expect(r.TTL).To(Equal(ttl.Seconds()))
		return r, log.String()
	}
}

func TestADrillDoesNotDisturbElectionsInOtherBuckets(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	f := newFixture(t, 15*time.Second)
	var won, lost atomic.Int32
	candidate := func(name string) *election.Election {
		return clitest.Campaign(t, f.Bucket, name, "scheduler", election.WithCampaignInterval(500*time.Millisecond),
			election.OnWon(func() { won.Add(1) }), election.OnLost(func() { lost.Add(1) }))
	}
	leader := candidate("staging-1")
	g.Eventually(leader.IsLeader).Should(BeTrue())
	term, _ := leader.Term()
	follower := candidate("staging-2")
	g.Eventually(func() *election.Leader { return follower.Status().Leader }).ShouldNot(BeNil())
	began := time.Now()
	before, err := leader.Leader(t.Context())
	g.Expect(err).NotTo(HaveOccurred())

	// The drill must create its own bucket even if --bucket names this one.
	r, _ := rehearse(t, cli.ExitOK, 3*time.Second, "-s", f.Server.URL(), "--bucket", cli.DefaultBucket, "--candidates", "2")
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
	g.Expect(after.Revision-before.Revision).To(BeNumerically("<=", time.Since(began).Seconds()/0.5+3), "only the leader wrote to the bucket")
	g.Expect(streamsOf(t, f.Client)).To(ConsistOf("KV_" + cli.DefaultBucket))
}

func TestADrillThatFailsRemovesItsBucket(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const connections = 2 // one for the test, one for the drill's operator, none for its candidates
	srv := natstest.StartNode(t, "server", &server.Options{JetStream: true, MaxConn: connections})
	s := clitest.Connect(t, srv.ClientURL(), "")

	var created atomic.Int32
	_, err := s.Conn.Subscribe("$JS.EVENT.ADVISORY.STREAM.CREATED.*", func(*nats.Msg) { created.Add(1) })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Conn.Flush()).To(Succeed())
	g.Eventually(func(g Gomega) { // a client of an earlier test, whose server had the same port, may take the operator's connection
		code, stdout, stderr := runBinary(t, "drill", "-s", srv.ClientURL())
		g.Expect(code).To(Equal(cli.ExitFailure), stdout)
		g.Expect(strings.ToLower(stderr)).To(ContainSubstring("maximum connections"))
		g.Expect(s.Conn.Flush()).To(Succeed())
		g.Expect(created.Load()).To(BeNumerically(">", 0), "the drill had created its bucket")
	}).Should(Succeed())
	g.Expect(streamsOf(t, s)).To(BeEmpty())
}

func TestADrillOfAlertsServesWhatTheAlertsAreAbout(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	s := startServing(t, "drill", "--alerts", ":0", "--alert", "ElectionNoStandby", "--alert", "ElectionNoLeader")
	metrics := s.url("Metrics are served")
	s.g.Eventually(fetch(metrics)).Should(And(
		MatchRegexp(`election_standby{bucket="ALERT_DRILL",election="ElectionNoStandby",identity="alone"} 0`),
		MatchRegexp(`election_leader{bucket="ALERT_DRILL",election="ElectionNoStandby",identity="alone"} 1`),
		MatchRegexp(`election_healthy{bucket="ALERT_DRILL",election="ElectionNoLeader",identity="sick"} 0`),
		Not(ContainSubstring("ElectionPaused")),
	))
	s.g.Expect(s.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	s.g.Expect(s.cmd.Wait()).To(Succeed(), "an interrupt is the normal end")
}

func TestADrillWritesItsResultEvenIfItCannotWriteTheDrawing(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &drillCommand{Env: &cli.Env{Stdout: &out, Stderr: io.Discard}, svg: filepath.Join(t.TempDir(), "drill.svg")}
	full := errors.New("no space left on device")
	g.Expect(d.writeResult(&drill.Report{}, func(io.Writer) error { return full })).To(MatchError(full))
	g.Expect(out.String()).To(ContainSubstring("time until a candidate leads"))
}

func TestADrillWritesItsResultEvenIfItCannotRemoveItsBucket(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	srv := natstest.StartNode(t, "server", &server.Options{JetStream: true,
		Users: []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$JS.API.STREAM.DELETE.*"}},
		}}},
	})
	url := strings.Replace(srv.ClientURL(), "://", "://u:p@", 1)
	r, stderr := rehearse(t, cli.ExitFailure, 3*time.Second, "-s", url, "--candidates", "2")
	g.Expect(stderr).To(ContainSubstring("cannot remove bucket"))
	g.Expect(r.Samples).To(BeNumerically(">", 0))
}
