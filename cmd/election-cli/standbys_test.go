package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/mutex"
)

// standby starts a candidate that waits to take over until the end of the test.
func (f *fixture) standby(name, key string) *election.Election {
	f.T.Helper()
	e := clitest.Campaign(f.T, f.Bucket, name, key)
	f.Eventually(func() string { return e.Status().Notifications }).Should(Equal("republish"))
	return e
}

// codes returns the code and the key of each problem that a check finds, and its exit code. It checks twice, in two formats. The error says that
// the results differ: an answer may come too late for one check.
func (f *fixture) codes(args ...string) (codes []string, exit int, err error) {
	f.T.Helper()
	exit, stdout, stderr := f.run(append([]string{"check", "--format", "nagios"}, args...)...)
	var r struct {
		Status   string
		Findings []checkup.ElectionFinding
	}
	again, report, _ := f.run(append([]string{"check", "--json"}, args...)...)
	f.Expect(json.Unmarshal([]byte(report), &r)).To(Succeed(), report)
	for _, finding := range r.Findings {
		if finding.Severity > admin.SeverityInfo {
			codes = append(codes, strings.TrimSpace(finding.Code+" "+finding.Key))
		}
	}
	f.Expect(stderr).To(BeEmpty())
	if again != exit || !strings.HasPrefix(stdout, "ELECTION "+r.Status) {
		return nil, 0, fmt.Errorf("two checks differ: exit code %d and %s, exit code %d and %s", exit, stdout, again, report)
	}
	return codes, exit, nil
}

// expectCodes waits until a check finds the problems, and has the exit code. An answer may come too late for one check.
func (f *fixture) expectCodes(codes []string, exit int, args ...string) {
	f.T.Helper()
	f.Eventually(func() ([]any, error) {
		codes, exit, err := f.codes(args...)
		return []any{codes, exit}, err
	}).Should(Equal([]any{codes, exit}))
}

func TestALeaderAloneIsAWarningUntilAnotherCandidateWouldTakeOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	f.StartLeader()
	f.expectCodes([]string{"no-standby jobs"}, 1, "jobs")
	says := func(args ...string) func() string {
		return func() string {
			_, stdout, _ := f.run(args...)
			return stdout
		}
	}
	f.Eventually(says("check")).Should(ContainSubstring(`no-standby: nobody would take over "jobs" from "web-1": no other candidate answers. Fix: start the program on another host too, or read its log`))
	f.expectCodes(nil, 0, "jobs", "--ignore", "no-standby")

	second := f.standby("web-2", "jobs")
	f.expectCodes(nil, 0, "jobs")
	second.Pause()
	f.expectCodes([]string{"no-standby jobs"}, 1, "jobs")
	f.Eventually(says("check", "jobs", "--format", "nagios")).Should(ContainSubstring("1 other candidate answers, and is not ready"))
	second.Resume()
	f.ok("pause", "jobs")
	f.expectCodes([]string{"paused jobs"}, 1, "jobs") // a pause is wanted, and has a finding of its own
}

func TestAMissingStandbyIsNoFindingWhereNoneIsNeededOrKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	f.Put("silent", clitest.LeaderRecord("web-1", nil)) // its leader does not answer
	f.Put("plain", "choria")
	lock, err := mutex.New("web-1", "lock", f.Bucket, election.WithStandDown(0))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(lock.Lock(t.Context())).To(Succeed())
	f.T.Cleanup(func() { _ = lock.Unlock() })
	f.expectCodes(nil, 0, "--ignore", "markers-plain-names")
	f.Put("silent", clitest.LeaderRecord("web-1", nil)) // the first records may have expired
	f.Put("plain", "choria")
	var elections []look.Holder
	f.read(0, &elections, "ls")
	f.Expect(elections).To(HaveLen(3))
	for _, h := range elections {
		f.Expect(h.Standbys).To(BeNil(), h.Key)
	}
	_, stdout, _ := f.run("ls")
	f.Expect(strings.Count(stdout, "\t-\n")).To(Equal(3), stdout)
}

func TestLsAndInfoShowTheStandbysOfEachElection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.StartLeader()
	shown := func(n int, says string) func(Gomega) {
		return func(g Gomega) {
			var elections []look.Holder
			f.read(0, &elections, "ls")
			g.Expect(elections).To(HaveLen(1))
			g.Expect(elections[0].Standbys).To(HaveValue(Equal(n)))
			var one look.ElectionInfo
			f.read(0, &one, "info", "jobs")
			g.Expect(one.Leader.Standbys).To(HaveValue(Equal(n)))
			var bucket look.BucketInfo
			f.read(0, &bucket, "info")
			g.Expect(bucket.Elections[0].Standbys).To(HaveValue(Equal(n)))
			_, table, _ := f.run("ls")
			g.Expect(table).To(HaveSuffix(fmt.Sprintf("\t%d\n", n)))
			_, info, _ := f.run("info", "jobs")
			g.Expect(info).To(MatchRegexp(`Standbys:? +` + says))
		}
	}
	f.Eventually(shown(0, "none: nobody would take over")).Should(Succeed())
	f.standby("web-2", "jobs")
	f.standby("web-3", "jobs")
	f.Eventually(shown(2, "2: web-2, web-3")).Should(Succeed(), "an answer may come too late")
}

func TestAnExpectedElectionWithoutARecordIsAFinding(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	f.Put("silent", clitest.LeaderRecord("web-1", nil))
	f.expectCodes(nil, 0)                               // nobody knows of the others
	f.Put("silent", clitest.LeaderRecord("web-1", nil)) // the first record may have expired
	f.expectCodes([]string{"no-leader jobs", "no-leader reports"}, 2, "--expect", "silent,reports", "--expect", "jobs")
	code, stdout, _ := f.run("check", "--expect", "jobs", "--format", "prometheus")
	f.Expect(code).To(Equal(2))
	f.Expect(stdout).To(ContainSubstring(`election_check_term{bucket="LEADER_ELECTION",election="jobs"} 0`))
}

func TestARunThatDoesNotWaitNeedsNoStandby(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, healthyTTL)
	for _, c := range []struct {
		key   string
		args  []string
		codes []string
		exit  int
	}{
		{"cron", []string{"--no-wait"}, nil, 0},
		{"service", nil, []string{"no-standby service"}, 1},
	} {
		cmd, _, _ := command(f.T, slices.Concat([]string{"run", "-s", f.Server.URL(), "--name", "web-1", "--stand-down", "0s"}, c.args, []string{c.key, "--", "sleep", "60"})...)
		f.Expect(cmd.Start()).To(Succeed())
		f.ok("wait", c.key, "--max-wait", clitest.Timeout.String())
		f.expectCodes(c.codes, c.exit, c.key)
		f.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
		_ = cmd.Wait()
	}
}
