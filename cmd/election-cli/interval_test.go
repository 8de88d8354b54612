package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/timing"
)

// commandsThatLead are the commands that hold leadership, each for an election of its own, with the exit code of an error.
func commandsThatLead(t *testing.T) map[string]struct {
	args []string
	code int
} {
	return map[string]struct {
		args []string
		code int
	}{
		"campaign": {[]string{"campaign", "campaign"}, cli.ExitFailure},
		"file":     {[]string{"file", "file", filepath.Join(t.TempDir(), "leader.json")}, cli.ExitFailure},
		"run":      {[]string{"run", "run", "--", "sleep", "1000"}, supervise.ExitOwnError},
	}
}

func TestCommandsThatLeadRenewAtTheIntervalOfTheEnvironment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for key, c := range commandsThatLead(t) {
		cmd, _, stderr := f.command(c.args...)
		cmd.Env = append(cmd.Environ(), "ELECTION_INTERVAL=7s")
		if key == "run" {
			cmd, _, stderr = command(t, "run", "run", "--interval", "7s", "-s", f.Server.URL(), "--", "sleep", "1000")
			cmd.Env = append(cmd.Environ(), "ELECTION_INTERVAL=8s") // the flag has precedence
		}
		f.Expect(cmd.Start()).To(Succeed())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		f.Eventually(func(g Gomega) {
			entry, err := f.Bucket.Get(t.Context(), key)
			g.Expect(err).NotTo(HaveOccurred())
			var record map[string]any
			g.Expect(json.Unmarshal(entry.Value(), &record)).To(Succeed())
			g.Expect(record).To(HaveKeyWithValue("interval_ms", 7000.0))
		}).Should(Succeed(), "%s: %s", key, stderr)
	}
}

func TestAnIntervalThatDoesNotFitTheBucketIsRefusedWithItsBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, timing.DefaultTTL)
	for key, c := range commandsThatLead(t) {
		args := []string{c.args[0], "--interval", "13401ms", "-s", f.Server.URL()}
		code, stdout, stderr := runBinary(t, append(args, c.args[1:]...)...)
		f.Expect(code).To(Equal(c.code), stderr)
		f.Expect(stdout+stderr).NotTo(Or(ContainSubstring("started"), ContainSubstring("State changed")), "it is refused before the campaign starts")
		for _, text := range []string{"13.401s", "TTL of 15s", "use 10ms to 13.4s", "or leave --interval out"} {
			f.Expect(stderr).To(ContainSubstring(text), key)
		}
		f.Expect(stderr).NotTo(ContainSubstring("WithCampaignInterval"), key)
	}
}

func TestCheckForecastsForTheIntervalOfTheCandidates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, timing.DefaultTTL)
	for interval, survives := range map[time.Duration]string{0: "survives 9.7s", timing.DefaultTTL * 3 / 4: "survives 2.2s"} {
		args := []string{"check"}
		if interval > 0 {
			args = append(args, "--interval", interval.String())
		}
		stdout := f.ok(args...)
		f.Expect(stdout).To(ContainSubstring(survives))
	}
	code, stdout, _ := f.run("check", "--interval", "13401ms")
	f.Expect(code).To(Equal(2))
	f.Expect(stdout).To(And(ContainSubstring("options-unfit"), ContainSubstring("or leave --interval out")))
}
