package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
)

// fleet is a server with a bucket and candidates that run as processes. The candidate web-1 leads.
type fleet struct {
	*fixture
	leader *process
	others map[string]*process
}

// fleetTTL outlasts the stalls of a busy host.
const fleetTTL = 15 * time.Second

// startFleet starts a server, the leader web-1, and the other candidates.
func startFleet(t *testing.T, others ...string) *fleet {
	t.Helper()
	inRealTime(t)
	skipWithoutInterrupts(t)
	t.Parallel()
	return newFleet(t, fleetTTL, others...)
}

// newFleet is startFleet, with a TTL, within a test that has begun as startFleet does.
func newFleet(t *testing.T, ttl time.Duration, others ...string) *fleet {
	t.Helper()
	f := &fleet{newFixture(t, ttl), nil, map[string]*process{}}
	ledBefore(t, f.Server.URL())
	f.leader = f.startCandidate("web-1")
	f.leader.next(events.Elected)
	f.leader.next(events.Leading)
	for _, name := range others {
		f.others[name] = f.startFollower(name)
	}
	return f
}

// startCandidate starts a candidate for the key jobs.
func (f *fleet) startCandidate(name string) *process {
	f.T.Helper()
	c := startCampaign(f.T, "-s", f.Server.URL(), "--name", name, "--interval", "500ms")
	c.next(events.Started)
	return c
}

// startFollower starts a candidate while another leads.
func (f *fleet) startFollower(name string) *process {
	f.T.Helper()
	c := f.startCandidate(name)
	c.next(events.Following)
	return c
}

// lateHandover is what a handover says on a busy host, where a candidate answers or takes over too late.
var lateHandover = regexp.MustCompile(`does not answer|[Nn]o candidate|No other candidate is ready|was quicker|has not taken over within|[Nn]obody leads|leads "jobs" (again|already)|"leader": null`)

// handovers runs commands that hand over, which must succeed, and returns what they write. If a candidate is too late, it begins again with a new
// fleet: who leads in the end is not known.
func (f *fleet) handovers(lines ...string) (stdout []string) {
	f.T.Helper()
	for tries := 1; len(stdout) < len(lines); tries++ {
		if tries > 1 {
			*f = *newFleet(f.T, fleetTTL, slices.Collect(maps.Keys(f.others))...)
		}
		stdout = nil
		for _, line := range lines {
			code, out, stderr := f.run(strings.Fields(line)...)
			if tries < 5 && lateHandover.MatchString(out+stderr) {
				break
			}
			f.Expect(code).To(Equal(cli.ExitOK), stderr)
			stdout = append(stdout, out)
		}
	}
	return stdout
}

// handOver runs a command by which one candidate is to hand over a key to another. If a candidate is too late, the first gets the key back, and the
// command runs again.
func handOver(g Gomega, run func(args ...string) (code int, stdout, stderr string), key, from, to string, command ...string) {
	want := fmt.Sprintf("0 %q has handed over %q to %q, term ", from, key, to)
	g.Eventually(func() string {
		code, stdout, stderr := run(command...)
		got := fmt.Sprint(code, " ", stdout, stderr)
		if !strings.HasPrefix(got, want) {
			_, _, _ = run("transfer", key, "--to", from)
		}
		return got
	}).WithTimeout(4 * clitest.Timeout).Should(HavePrefix(want))
}

func TestTransferHandsOverToTheNamedCandidate(t *testing.T) {
	f := startFleet(t, "web-2", "web-3")
	stdout := f.handovers("transfer jobs --to web-2", "transfer jobs --to web-3 --json")
	f.Expect(stdout[0]).To(MatchRegexp(`^"web-1" has handed over "jobs" to "web-2", term \d+, in \d+ ms\n$`))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	f.leader.next(events.Lost)

	var r handoverReport
	f.Expect(json.Unmarshal([]byte(stdout[1]), &r)).To(Succeed())
	f.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-2 web-3"))
	f.Expect(r.Leader.Term).NotTo(BeZero())
	f.Eventually(func(g Gomega) { // a release may not be confirmed if the host is busy
		code, _, stderr := f.run("resign", "jobs", "--json", "--force")
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
	}).Should(Succeed())
}

func TestHandoverBetweenCandidatesOfOneNameSaysWhichTheyAre(t *testing.T) {
	f := startFleet(t, "web-1")
	stdout := f.handovers("transfer jobs --to web-1")[0]
	other := f.others["web-1"]
	of := regexp.MustCompile(`^"web-1" \(process (\d+) on \S+\) has handed over "jobs" to "web-1" \(process (\d+) on \S+\), term \d+, in \d+ ms\n$`).FindStringSubmatch(stdout)
	f.Expect(of).To(HaveLen(3), stdout)
	f.Expect(of[1]).NotTo(Equal(of[2]))
	other.next(events.Elected)
	other.next(events.Leading)
	other.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestTransferToTheLeaderItselfSucceeds(t *testing.T) {
	f := startFleet(t)
	stdout := f.ok("transfer", "jobs", "--to", "web-1")
	f.Expect(stdout).To(MatchRegexp(`^"web-1" leads "jobs" already, term \d+\n$`))
	stdout = f.ok("transfer", "jobs", "--to", "web-1", "--json")
	var r handoverReport
	f.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	f.Expect(r.Leader).NotTo(BeNil(), stdout)
	f.Expect(r.Key + " " + r.From + " " + r.Leader.Name).To(Equal("jobs web-1 web-1"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestTransferToAnAbsentCandidateExits1AndKeepsTheLeader(t *testing.T) {
	f := startFleet(t)
	code, _, stderr := f.run("transfer", "jobs", "--to", "web-\x1b[31m9")
	f.Expect(code).To(Equal(cli.ExitFailure), "no candidate can have this name")
	f.Expect(stderr).NotTo(ContainSubstring("\x1b"))
	code, stdout, stderr := f.run("transfer", "jobs", "--to", "web-9")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stdout).To(BeEmpty())
	f.Expect(stderr).To(And(ContainSubstring(`"web-1" leads on`), ContainSubstring(`no candidate "web-9" answers`)))
	code, _, stderr = f.run("transfer", "nothing", "--to", "web-1")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(ContainSubstring(`nobody leads "nothing"`))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
}

func TestResignAsksOnlyIfNoOtherCandidateIsReady(t *testing.T) {
	f := startFleet(t)
	code, _, stderr := f.run("resign", "jobs")
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(And(ContainSubstring("No other candidate is ready in \"jobs\""), ContainSubstring("--force")))

	f.Eventually(func() string { // the command says something else if the leader is slow, or if the command itself is
		code, stdout, stderr := f.run("resign", "jobs", "--force")
		for _, event := range []string{events.Lost, events.Released, events.Elected, events.Leading} {
			f.leader.next(event)
		}
		return fmt.Sprint(code, " ", stderr, stdout)
	}).Should(MatchRegexp(`^0 "web-1" has resigned, waiting up to 2s for the next leader\n"web-1" has resigned, and leads "jobs" again, term \d+\n$`))

	f.others["web-2"] = f.startFollower("web-2")
	f.Expect(f.handovers("resign jobs")[0]).To(ContainSubstring(`"web-1" has handed over "jobs" to "web-2"`))
	two := f.others["web-2"]
	two.next(events.Elected)
	two.next(events.Leading)
	two.interrupt(events.Lost, events.Released, events.Stopped)
	f.leader.kill()
}

func TestCandidatesListsTheLeaderFirst(t *testing.T) {
	f := startFleet(t, "web-3", "web-2")
	f.Eventually(func(g Gomega) { // a candidate may answer too late
		var found []look.Candidate
		code, stdout, stderr := f.run("candidates", "jobs", "--json")
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
		g.Expect(json.Unmarshal([]byte(stdout), &found)).To(Succeed())
		shown := []string{}
		for _, c := range found {
			shown = append(shown, fmt.Sprint(c.Name, " ", c.State, " ", c.Ready))
			g.Expect(c.PID).NotTo(BeZero())
		}
		g.Expect(shown).To(Equal([]string{"web-1 leader false", "web-2 candidate true", "web-3 candidate true"}))
		g.Expect(found[0].ClockLag).To(BeNumerically("~", 0, time.Second), "all processes share one clock")
	}).Should(Succeed())

	f.Eventually(func() string { _, stdout, _ := f.run("candidates", "jobs"); return stdout }).Should(MatchRegexp(`(?m)^web-2\tcandidate\tyes\t`))
	code, stdout, stderr := f.run("candidates", "nothing", "--json")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stdout).To(Equal("[]\n"))
	f.Expect(stderr).To(Equal("election-cli: no candidate answers in \"nothing\"; 'election-cli check nothing' says why\n"))
}

func TestResignExits1IfTheLeaderDoesNotAnswer(t *testing.T) {
	f := startFleet(t)
	_, err := f.Bucket.PutString(t.Context(), "legacy", "choria\x1b[2J.example.net")
	f.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := f.run("resign", "legacy", "--force")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stdout + stderr).NotTo(ContainSubstring("\x1b"))
	f.Expect(stderr).To(And(ContainSubstring(`bare name`), ContainSubstring("evict")))
	_, err = f.Bucket.PutString(t.Context(), "legacy", "choria.example.net") // the first record may have expired
	f.Expect(err).NotTo(HaveOccurred())
	code, _, stderr = f.run("candidates", "legacy")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(ContainSubstring("holds the key, but does not answer"))
}

func TestAPausedElectionGetsNoLeaderUntilItIsResumed(t *testing.T) {
	f := startFleet(t, "web-2")
	stdout := f.ok("pause", "jobs")
	f.Expect(stdout).To(Equal("\"jobs\" is paused: its leader keeps leading, and no candidate campaigns\n"))
	_, stdout, _ = f.run("info")
	f.Expect(stdout).To(MatchRegexp(`Paused: *jobs`))
	operator := `since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d by \S+@\S+`
	_, stdout, _ = f.run("info", "jobs")
	f.Expect(stdout).To(MatchRegexp(`Paused: *` + operator + `: candidates do not campaign until 'election-cli resume jobs'`))
	_, stdout, _ = f.run("ls")
	f.Expect(stdout).To(ContainSubstring("leader, paused"))
	code, stdout, _ := f.run("check", "jobs")
	f.Expect(code).To(Equal(1), stdout) // WARNING
	f.Expect(stdout).To(MatchRegexp(`"jobs" is paused ` + operator))
	code, _, stderr := f.run("transfer", "jobs", "--to", "web-2")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(ContainSubstring("the election is paused"))
	f.leader.interrupt(events.Lost, events.Released, events.Stopped)
	f.Eventually(func() string { // a busy server may store the release later
		code, _, stderr = f.run("resign", "jobs", "--force")
		return stderr
	}).Should(ContainSubstring(`nobody leads "jobs"`))
	f.Expect(code).To(Equal(cli.ExitNegative))
	_, stdout, _ = f.run("ls")
	f.Expect(stdout).To(MatchRegexp(`jobs\s+-\s+paused`))
	code, stdout, _ = f.run("check", "jobs")
	f.Expect(code).To(Equal(2), stdout) // CRITICAL
	f.Expect(stdout).To(MatchRegexp(`nobody leads "jobs": the election is paused ` + operator + `; "web-1" led until .*\. Fix: run 'election-cli resume jobs'`))
	_, stdout, _ = f.run("check")
	f.Expect(stdout).To(ContainSubstring(`"jobs" is paused`))
	code, _, stderr = f.run("info", "jobs")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(MatchRegexp("it is paused " + operator))
	stdout = f.ok("resume", "jobs")
	f.Expect(stdout).To(Equal("\"jobs\" is resumed: its candidates campaign again. Nobody leads: the winner stands down first, for up to 15s, unless the last leader released the key\n"))
	_, stdout, _ = f.run("resume", "jobs")
	f.Expect(stdout).To(Equal("\"jobs\" was not paused\n"))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	code, _, _ = f.run("pause", "a b")
	f.Expect(code).To(Equal(cli.ExitFailure))
	code, _, stderr = f.run("pause", "jbos")
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(ContainSubstring(`Nobody leads "jbos", and no candidate answers`))
	stdout = f.ok("pause", "ghost", "--force")
	f.Expect(stdout).To(Equal("\"ghost\" is paused: nobody leads it, and no candidate campaigns\n"))
	_, _, _ = f.run("resume", "ghost")
	_, stdout, _ = f.run("info", "--json")
	f.Expect(stdout).To(ContainSubstring(`"paused": []`))
}
