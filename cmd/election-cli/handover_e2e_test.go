package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
)

// fleet is a server with a bucket and candidates that run as processes. The candidate web-1 leads.
type fleet struct {
	g      Gomega
	server *embedded.Server
	leader *candidateProcess
	others map[string]*candidateProcess
}

// startFleet starts a server, the leader web-1, and the other candidates.
func startFleet(t *testing.T, others ...string) *fleet {
	t.Helper()
	skipWithoutInterrupts(t)
	g := NewWithT(t)
	e, _ := clitest.ServerWithBucket(t, 15*time.Second)
	f := &fleet{g: g, server: e, others: map[string]*candidateProcess{}}
	f.leader = startCampaign(t, "-s", e.URL(), "--name", "web-1", "--interval", "500ms")
	for _, event := range []string{events.Started, events.Elected, events.Leading} {
		f.leader.next(event)
	}
	for _, name := range others {
		f.others[name] = startCampaign(t, "-s", e.URL(), "--name", name, "--interval", "500ms")
		f.others[name].next(events.Started)
		f.others[name].next(events.Following)
	}
	return f
}

// run runs a command line against the server, in this process.
func (f *fleet) run(args ...string) (code int, stdout, stderr string) {
	code, stdout, stderr = runInProcess(append(args, "-s", f.server.URL())...)
	expectOutput(f.g, args, stdout)
	return code, stdout, stderr
}

func TestTransferHandsOverToTheNamedCandidate(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t, "web-2", "web-3")
	code, stdout, stderr := f.run("transfer", "jobs", "--to", "web-2")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(MatchRegexp(`^"web-1" has handed over "jobs" to "web-2", term \d+, in \d+ ms\n$`))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	f.leader.next(events.Lost)

	code, stdout, stderr = f.run("transfer", "jobs", "--to", "web-3", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r handoverReport
	f.g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	f.g.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-2 web-3"))
	f.g.Expect(r.Leader.Term).NotTo(BeZero())
	code, _, stderr = f.run("resign", "jobs", "--json", "--force")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
}

func TestHandoverBetweenCandidatesOfOneNameSaysWhichTheyAre(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t)
	other := startCampaign(t, "-s", f.server.URL(), "--name", "web-1", "--interval", "500ms")
	other.next(events.Started)
	other.next(events.Following)
	code, stdout, stderr := f.run("transfer", "jobs", "--to", "web-1")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	of := regexp.MustCompile(`^"web-1" \(process (\d+) on \S+\) has handed over "jobs" to "web-1" \(process (\d+) on \S+\), term \d+, in \d+ ms\n$`).FindStringSubmatch(stdout)
	f.g.Expect(of).To(HaveLen(3), stdout)
	f.g.Expect(of[1]).NotTo(Equal(of[2]))
	other.next(events.Elected)
	other.next(events.Leading)
	other.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestTransferToTheLeaderItselfSucceeds(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t)
	code, stdout, stderr := f.run("transfer", "jobs", "--to", "web-1")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(MatchRegexp(`^"web-1" leads "jobs" already, term \d+\n$`))
	code, stdout, stderr = f.run("transfer", "jobs", "--to", "web-1", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r handoverReport
	f.g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	f.g.Expect(r.Leader).NotTo(BeNil(), stdout)
	f.g.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-1 web-1"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestTransferToAnAbsentCandidateExits1AndKeepsTheLeader(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t)
	code, _, stderr := f.run("transfer", "jobs", "--to", "web-\x1b[31m9")
	f.g.Expect(code).To(Equal(cli.ExitFailure), "no candidate can have this name")
	f.g.Expect(stderr).NotTo(ContainSubstring("\x1b"))
	code, stdout, stderr := f.run("transfer", "jobs", "--to", "web-9")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout).To(BeEmpty())
	f.g.Expect(stderr).To(And(ContainSubstring(`"web-1" leads on`), ContainSubstring(`no candidate "web-9" answers`)))
	code, _, stderr = f.run("transfer", "nothing", "--to", "web-1")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring(`nobody leads "nothing"`))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestResignAsksOnlyIfNoOtherCandidateIsReady(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t)
	code, _, stderr := f.run("resign", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitFailure))
	f.g.Expect(stderr).To(And(ContainSubstring("No other candidate is ready in \"jobs\""), ContainSubstring("--force")))

	code, stdout, stderr := f.run("resign", "jobs", "--force")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(MatchRegexp(`^"web-1" has resigned, and leads "jobs" again, term \d+\n$`))
	f.g.Expect(stderr).To(Equal("\"web-1\" has resigned, waiting up to 2s for the next leader\n"))
	for _, event := range []string{events.Lost, events.Released, events.Elected, events.Leading} {
		f.leader.next(event)
	}

	two := startCampaign(t, "-s", f.server.URL(), "--name", "web-2", "--interval", "500ms")
	two.next(events.Started)
	two.next(events.Following)
	code, stdout, stderr = f.run("resign", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(ContainSubstring(`"web-1" has handed over "jobs" to "web-2"`))
	two.next(events.Elected)
	two.next(events.Leading)
	two.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestCandidatesListsTheLeaderFirst(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t, "web-3", "web-2")
	code, stdout, stderr := f.run("candidates", "jobs", "--json")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var found []look.Candidate
	f.g.Expect(json.Unmarshal([]byte(stdout), &found)).To(Succeed())
	shown := []string{}
	for _, c := range found {
		shown = append(shown, fmt.Sprint(c.Name, " ", c.State, " ", c.Ready))
		f.g.Expect(c.PID).NotTo(BeZero())
	}
	f.g.Expect(shown).To(Equal([]string{"web-1 leader false", "web-2 candidate true", "web-3 candidate true"}))
	f.g.Expect(found[0].ClockLag).To(BeNumerically("~", 0, time.Second), "all processes share one clock")

	code, stdout, _ = f.run("candidates", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK))
	f.g.Expect(stdout).To(MatchRegexp(`(?m)^web-2\tcandidate\tyes\t`))
	code, stdout, stderr = f.run("candidates", "nothing", "--json")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout).To(Equal("[]\n"))
	f.g.Expect(stderr).To(Equal("election-cli: no candidate answers in \"nothing\"; 'election-cli check nothing' says why\n"))
}

func TestResignExits1IfTheLeaderDoesNotAnswer(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t)
	s, err := (&cli.ConnectionFlags{Server: f.server.URL(), Timeout: clitest.Timeout}).Connect()
	f.g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	bucket, err := s.JetStream.KeyValue(t.Context(), "LEADER_ELECTION")
	f.g.Expect(err).NotTo(HaveOccurred())
	_, err = bucket.PutString(t.Context(), "legacy", "choria\x1b[2J.example.net")
	f.g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := f.run("resign", "legacy", "--force")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stdout + stderr).NotTo(ContainSubstring("\x1b"))
	f.g.Expect(stderr).To(And(ContainSubstring(`bare name`), ContainSubstring("evict")))
	_, err = bucket.PutString(t.Context(), "legacy", "choria.example.net") // the first record may have expired
	f.g.Expect(err).NotTo(HaveOccurred())
	code, _, stderr = f.run("candidates", "legacy")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring("holds the key, but does not answer"))
}

func TestAPausedElectionGetsNoLeaderUntilItIsResumed(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := startFleet(t, "web-2")
	code, stdout, stderr := f.run("pause", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(Equal("\"jobs\" is paused: its leader keeps leading, and no candidate campaigns\n"))
	_, stdout, _ = f.run("info")
	f.g.Expect(stdout).To(MatchRegexp(`Paused: *jobs`))
	operator := `since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d by \S+@\S+`
	_, stdout, _ = f.run("info", "jobs")
	f.g.Expect(stdout).To(MatchRegexp(`Paused: *` + operator + `: candidates do not campaign until 'election-cli resume jobs'`))
	_, stdout, _ = f.run("ls")
	f.g.Expect(stdout).To(ContainSubstring("leader, paused"))
	code, stdout, _ = f.run("check", "jobs")
	f.g.Expect(code).To(Equal(1), stdout) // WARNING
	f.g.Expect(stdout).To(MatchRegexp(`"jobs" is paused ` + operator))
	code, _, stderr = f.run("transfer", "jobs", "--to", "web-2")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring("the election is paused"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
	code, _, stderr = f.run("resign", "jobs", "--force")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(ContainSubstring(`nobody leads "jobs"`))
	_, stdout, _ = f.run("ls")
	f.g.Expect(stdout).To(MatchRegexp(`jobs\s+-\s+paused`))
	code, stdout, _ = f.run("check", "jobs")
	f.g.Expect(code).To(Equal(2), stdout) // CRITICAL
	f.g.Expect(stdout).To(MatchRegexp(`nobody leads "jobs": the election is paused ` + operator + `; "web-1" led until .*\. Fix: run 'election-cli resume jobs'`))
	_, stdout, _ = f.run("check")
	f.g.Expect(stdout).To(ContainSubstring(`"jobs" is paused`))
	code, _, stderr = f.run("info", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitNegative))
	f.g.Expect(stderr).To(MatchRegexp("it is paused " + operator))
	code, stdout, _ = f.run("resume", "jobs")
	f.g.Expect(code).To(Equal(cli.ExitOK))
	f.g.Expect(stdout).To(Equal("\"jobs\" is resumed: its candidates campaign again. Nobody leads: the winner stands down first, for up to 15s, unless the last leader released the key\n"))
	_, stdout, _ = f.run("resume", "jobs")
	f.g.Expect(stdout).To(Equal("\"jobs\" was not paused\n"))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	code, _, _ = f.run("pause", "a b")
	f.g.Expect(code).To(Equal(cli.ExitFailure))
	code, _, stderr = f.run("pause", "jbos")
	f.g.Expect(code).To(Equal(cli.ExitFailure))
	f.g.Expect(stderr).To(ContainSubstring(`Nobody leads "jbos", and no candidate answers`))
	code, stdout, stderr = f.run("pause", "ghost", "--force")
	f.g.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.g.Expect(stdout).To(Equal("\"ghost\" is paused: nobody leads it, and no candidate campaigns\n"))
	_, _, _ = f.run("resume", "ghost")
	_, stdout, _ = f.run("info", "--json")
	f.g.Expect(stdout).To(ContainSubstring(`"paused": []`))
}
