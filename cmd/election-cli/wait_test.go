package main

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestWaitEndsAtOnceIfTheConditionHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	var found look.ElectionInfo
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.read(cli.ExitOK, &found, "wait", "jobs")
	f.Expect([]string{found.Key, found.Bucket, found.Leader.Name, found.Leader.State}).To(Equal([]string{"jobs", "LEADER_ELECTION", "web-1", look.StateLeader}))
	code, stdout, _ := f.run("wait", "jobs", "--leader", "web-1", "--max-wait", "1m")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, "\"web-1\" leads \"jobs\", term 7\n"}))

	found = look.ElectionInfo{}
	f.read(cli.ExitOK, &found, "wait", "free", "--vacant")
	f.Expect(found).To(Equal(look.ElectionInfo{Key: "free", Bucket: "LEADER_ELECTION"}))
	code, stdout, _ = f.run("wait", "free", "--vacant")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, "\"free\" is vacant\n"}))
}

func TestWaitEndsWhenTheConditionBecomesTrue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		change func(*fixture)
	}{
		"leadership begins to count": {nil, func(f *fixture) { f.Put("jobs", clitest.LeaderRecord("web-2", nil)) }},
		"the named candidate leads": {[]string{"--leader", "web-2"}, func(f *fixture) {
			f.Put("jobs", clitest.LeaderRecord("web-3", nil))
			f.Put("jobs", clitest.LeaderRecord("web-2", nil))
		}},
		"the key was free for a moment": {[]string{"--vacant"}, func(f *fixture) { f.Put("jobs", clitest.LeaderRecord("web-2", clitest.Record{"won": "released"})) }},
		"the key is deleted":            {[]string{"--vacant"}, func(f *fixture) { f.Expect(f.Bucket.Delete(f.T.Context(), "jobs")).To(Succeed()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, clitest.LongTTL)
			f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"term": 0}))
			cmd, stdout, stderr := f.command(append([]string{"wait", "jobs"}, c.args...)...)
			f.Expect(cmd.Start()).To(Succeed())
			f.waitForWatcher()
			c.change(f)
			f.Expect(cmd.Wait()).To(Succeed(), stderr.String())
			f.Expect(stdout.String()).To(Or(HavePrefix(`"web-2" leads "jobs"`), Equal("\"jobs\" is vacant\n")))
		})
	}
}

// waitForWatcher waits until a consumer has received the current state of the bucket.
func (f *fixture) waitForWatcher() {
	f.T.Helper()
	stream, err := f.Client.JetStream.Stream(f.T.Context(), "KV_LEADER_ELECTION")
	f.Expect(err).NotTo(HaveOccurred())
	f.Eventually(func() (ready bool) {
		for c := range stream.ListConsumers(f.T.Context()).Info() {
			ready = c.NumPending == 0 && c.Delivered.Consumer > 0
		}
		return ready
	}).Should(BeTrue())
}

// longEnough is how long wait may take to learn that its condition does not hold, on a busy host.
const longEnough = "8s"

func TestWaitExits124AfterMaxWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for want, args := range map[string][]string{
		`"jobs" did not get a leader within 8s; 'election-cli check jobs' says why`:           {"jobs"},
		`"jobs" did not get the leader "web-2" within 8s; 'election-cli check jobs' says why`: {"jobs", "--leader", "web-2"},
		`"jobs" did not become vacant within 8s` + "\n":                                       {"jobs", "--vacant"},
		`"nobody-there" did not get a leader within 8s`:                                       {"nobody-there"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"term": 0})) // not sooner: a subtest that runs beside others may begin late
			code, stdout, stderr := f.run(append([]string{"wait", "--max-wait", longEnough}, args...)...)
			g.Expect([]any{code, stdout}).To(Equal([]any{supervise.ExitTimedOut, ""}), stderr)
			g.Expect(stderr).To(ContainSubstring(want))
		})
	}
}

func TestWaitSaysThatTheElectionIsPaused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Put("elected", clitest.LeaderRecord("web-1", clitest.Record{"term": 0}))
	for _, key := range []string{"jobs", "elected", "ghost"} {
		f.ok("pause", key, "--force")
	}
	for _, args := range [][]string{{"ghost"}, {"elected"}, {"jobs", "--leader", "web-2"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			code, _, stderr := f.run(append([]string{"wait", "--max-wait", longEnough}, args...)...)
			g.Expect(code).To(Equal(supervise.ExitTimedOut))
			paused := `paused since \S+ \S+ by \S+, and no candidate campaigns until 'election-cli resume ` + args[0] + `'\n`
			g.Expect(stderr).To(MatchRegexp(`^"` + args[0] + `" is ` + paused + `election-cli: .* within 8s: it is ` + paused + `$`))
		})
	}
	for _, args := range [][]string{{"jobs"}, {"jobs", "--leader", "web-1"}, {"ghost", "--vacant"}} {
		code, _, stderr := f.run(append([]string{"wait"}, args...)...)
		f.Expect([]any{code, stderr}).To(Equal([]any{cli.ExitOK, ""}), "%q", args)
	}
}

func TestWaitExits130WhenInterrupted(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("other", clitest.LeaderRecord("x", nil))
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"term": 0}))
	cmd, stdout, _ := f.command("wait", "jobs")
	f.Expect(cmd.Start()).To(Succeed())
	f.waitForWatcher()
	f.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	f.Expect(cmd.Wait()).NotTo(Succeed())
	f.Expect(cmd.ProcessState.ExitCode()).To(Equal(cli.ExitInterrupted))
	f.Expect(stdout.String()).To(BeEmpty())
}

func TestABareNameCountsAsALeaderAtItsRenewal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", "puppet")
	cmd, stdout, stderr := f.command("wait", "jobs")
	f.Expect(cmd.Start()).To(Succeed())
	f.waitForWatcher()
	f.Put("jobs", "puppet")
	f.Expect(cmd.Wait()).To(Succeed(), stderr.String())
	f.Expect(stdout.String()).To(Equal("\"puppet\" leads \"jobs\"\n"))
}
