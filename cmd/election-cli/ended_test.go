package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

// endedElection returns a fixture with an election whose leader was stopped.
func endedElection(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now(), "reason": "stopped"}))
	return f
}

func TestNobodyLeadsSaysWhoLedLastUntilWhenAndWhy(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	const last = `"web-1" led until \S+ \S+ \(\S+ ago\), term 7: it was stopped`
	for _, args := range [][]string{{"info", "jobs"}, {"resign", "jobs", "--force"}, {"evict", "jobs", "--force"}} {
		code, _, stderr := f.run(args...)
		f.Expect(code).To(Equal(cli.ExitNegative))
		f.Expect(stderr).To(MatchRegexp(`nobody leads "jobs".*` + last))
	}
	_, stdout, _ := f.run("check", "jobs")
	f.Expect(stdout).To(MatchRegexp(`no-leader: nobody leads "jobs": no candidate answers; ` + last))
	f.Expect(stdout).NotTo(ContainSubstring("spelt"), "as this key is right")
	var info look.ElectionInfo
	f.read(cli.ExitNegative, &info, "info", "jobs")
	f.Expect(info.Leader).To(BeNil())
	f.Expect([]any{info.Ended.Kind, info.Ended.Leader.Name, string(info.Ended.Reason)}).To(Equal([]any{observe.Released, "web-1", "stopped"}))
}

func TestEndedElectionsAreListed(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	_, stdout, stderr := f.run("ls")
	f.Expect(stdout).To(BeEmpty())
	f.Expect(stderr).To(ContainSubstring("'election-cli ls --ended' lists 1 ended election"))
	_, stdout, _ = f.run("ls", "--ended")
	f.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\t\S+ \S+ \(\S+ ago\)\twas stopped\t7\thost-of-web-1\n$`))
	var ended []observe.Event
	f.read(cli.ExitOK, &ended, "ls", "--ended")
	f.Expect(ended).To(HaveLen(1))
}

func TestPruneForgetsOnlyWhatEndedLongAgoAndAsks(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	f.Put("leads", clitest.LeaderRecord("web-2", nil))
	ended := func() (all []observe.Event) {
		f.read(cli.ExitOK, &all, "ls", "--ended")
		return all
	}
	prune := func(code int, flags ...string) string {
		t.Helper()
		got, _, stderr := f.run(append([]string{"bucket", "prune"}, flags...)...)
		f.Expect(got).To(Equal(code), stderr)
		return stderr
	}
	f.Expect(prune(cli.ExitOK, "--older-than", "1h", "--force")).To(ContainSubstring("ended longer ago than 1h0m0s: nothing was forgotten"))
	f.Expect(prune(cli.ExitOK, "--older-than", "0s", "--dry-run")).To(ContainSubstring("1 ended election would be forgotten"))
	f.Expect(prune(cli.ExitFailure, "--older-than=-1s", "--force")).To(ContainSubstring("--older-than -1s"))
	f.Expect(prune(cli.ExitFailure, "--force")).To(ContainSubstring("--older-than"))
	f.Expect(prune(cli.ExitFailure, "--older-than", "0s")).To(ContainSubstring("--force"), "nobody can answer")
	f.Expect(ended()).To(HaveLen(1))
	var report bucketPruneReport
	f.read(cli.ExitOK, &report, "bucket", "prune", "--older-than", "0s", "--force")
	f.Expect(report.Forgotten).To(HaveLen(1))
	f.Expect(ended()).To(BeEmpty())
	f.Expect(f.HasRecord("leads")).To(BeTrue())
}
