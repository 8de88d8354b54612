package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/events"
)

// stage is a server with a bucket, and candidates of it that are processes of their own; the first leads.
type stage struct {
	g      Gomega
	server *embedded.Server
	leader *campaigner
	others map[string]*campaigner
}

func setStage(t *testing.T, others ...string) *stage {
	t.Helper()
	skipWithoutInterrupts(t)
	g := NewWithT(t)
	e, _ := clitest.ServerWithBucket(t, 2*time.Second)
	f := &stage{g: g, server: e, others: map[string]*campaigner{}}
	f.leader = startCampaign(t, "-s", e.URL(), "--name", "web-1")
	for _, event := range []string{events.Started, events.Elected, events.Leading} {
		f.leader.next(event)
	}
	for _, name := range others {
		f.others[name] = startCampaign(t, "-s", e.URL(), "--name", name)
		f.others[name].next(events.Started)
		f.others[name].next(events.Following)
	}
	return f
}

// try runs a command line on the server, in this process.
func (f *stage) try(args ...string) (code int, stdout, stderr string) {
	return try(append(args, "-s", f.server.URL())...)
}

func TestTransferMakesTheNamedCandidateLeadAndSaysSo(t *testing.T) {
	t.Parallel()
	f := setStage(t, "web-2", "web-3")
	code, stdout, stderr := f.try("transfer", "jobs", "--to", "web-2")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(MatchRegexp(`^jobs: web-1 has handed over to web-2, term \d+, in \d+ ms\n$`))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	f.leader.next(events.Lost)

	code, stdout, stderr = f.try("transfer", "jobs", "--to", "web-3", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r handoverReport
	f.g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	f.g.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-2 web-3"))
	f.g.Expect(r.Leader.Term).NotTo(BeZero())
}

func TestTransferToTheOneThatLeadsSaysThatItDoes(t *testing.T) {
	t.Parallel()
	f := setStage(t)
	code, stdout, stderr := f.try("transfer", "jobs", "--to", "web-1")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(MatchRegexp(`^jobs: web-1 leads already, term \d+\n$`))
	code, stdout, stderr = f.try("transfer", "jobs", "--to", "web-1", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r handoverReport
	f.g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	f.g.Expect(r.Leader).NotTo(BeNil(), stdout)
	f.g.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-1 web-1"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestTransferToOneThatIsNotThereExits1AndTheLeaderLeadsOn(t *testing.T) {
	t.Parallel()
	f := setStage(t)
	code, _, stderr := f.try("transfer", "jobs", "--to", "web-\x1b[31m9")
	f.g.Expect(code).To(Equal(cli.ExitFailure), "no candidate can have this name")
	f.g.Expect(stderr).NotTo(ContainSubstring("\x1b"))
	code, stdout, stderr := f.try("transfer", "jobs", "--to", "web-9")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout).To(BeEmpty())
	f.g.Expect(stderr).To(And(ContainSubstring(`"web-1" leads on`), ContainSubstring(`no candidate "web-9" answers`)))
	code, _, stderr = f.try("transfer", "nothing", "--to", "web-1")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring("nobody leads nothing"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestResignHandsOverToAnotherButAsksWhereThereIsNone(t *testing.T) {
	t.Parallel()
	f := setStage(t)
	code, _, stderr := f.try("resign", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitFailure))
	f.g.Expect(stderr).To(And(ContainSubstring("No other candidate answers in jobs"), ContainSubstring("--force")))

	two := startCampaign(t, "-s", f.server.URL(), "--name", "web-2")
	two.next(events.Started)
	two.next(events.Following)
	code, stdout, stderr := f.try("resign", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(ContainSubstring("web-1 has handed over to web-2"))
	two.next(events.Elected)
	two.next(events.Leading)
	two.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestCandidatesShowsAllThatStandAndTheLeaderFirst(t *testing.T) {
	t.Parallel()
	f := setStage(t, "web-3", "web-2")
	code, stdout, stderr := f.try("candidates", "jobs", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var found []candidateReport
	f.g.Expect(json.Unmarshal([]byte(stdout), &found)).To(Succeed())
	shown := []string{}
	for _, c := range found {
		shown = append(shown, fmt.Sprint(c.Name, " ", c.State, " ", c.Ready))
		f.g.Expect(c.PID).NotTo(BeZero())
	}
	f.g.Expect(shown).To(Equal([]string{"web-1 leader false", "web-2 candidate true", "web-3 candidate true"}))
	f.g.Expect(found[0].ClockLagMS).To(BeNumerically("~", 0, 1000), "there is but one clock here")

	code, stdout, _ = f.try("candidates", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK))
	f.g.Expect(stdout).To(MatchRegexp(`(?m)^web-2\tcandidate\tyes\t`))
	code, stdout, stderr = f.try("candidates", "nothing", "--json")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout).To(Equal("[]\n"))
	f.g.Expect(stderr).To(ContainSubstring("no candidate answers in nothing"))
}

func TestLeaderThatDoesNotAnswerIsToldFromOneThatResigned(t *testing.T) {
	t.Parallel()
	f := setStage(t)
	s, err := (&cli.ConnFlags{Server: f.server.URL(), Timeout: clitest.Patience}).Connect()
	f.g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	bucket, err := s.JetStream.KeyValue(t.Context(), "LEADER_ELECTION")
	f.g.Expect(err).NotTo(HaveOccurred())
	_, err = bucket.PutString(t.Context(), "legacy", "choria\x1b[2J.example.net")
	f.g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := f.try("resign", "legacy", "--force")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout + stderr).NotTo(ContainSubstring("\x1b"))
	f.g.Expect(stderr).To(And(ContainSubstring(`bare name`), ContainSubstring("evict")))
	_, err = bucket.PutString(t.Context(), "legacy", "choria.example.net") // the first has expired, maybe
	f.g.Expect(err).NotTo(HaveOccurred())
	code, _, stderr = f.try("candidates", "legacy")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring("holds the key, and does not answer"))
}

func TestPausedElectionGetsNoLeaderUntilItIsResumed(t *testing.T) {
	t.Parallel()
	f := setStage(t, "web-2")
	code, stdout, stderr := f.try("pause", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(Equal("jobs is paused: its leader leads on, no candidate campaigns\n"))
	_, stdout, _ = f.try("info")
	f.g.Expect(stdout).To(MatchRegexp(`Paused: *jobs`))
	_, stdout, _ = f.try("info", "jobs")
	f.g.Expect(stdout).To(ContainSubstring("election-cli resume jobs"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
	code, _, stderr = f.try("resign", "jobs", "--force")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring("nobody leads jobs"))
	code, stdout, _ = f.try("resume", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK))
	f.g.Expect(stdout).To(Equal("jobs is not paused\n"))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	code, _, _ = f.try("pause", "a b")
	f.g.Expect(code).To(Equal(cli.ExitFailure))
}
