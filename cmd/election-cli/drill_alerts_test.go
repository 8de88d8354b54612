package main

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestADrillOfAlertsServesWhatTheAlertsAreAbout(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	s := startServing(t, "drill", "--alerts", ":0", "--alert", "ElectionNoStandby", "--alert", "ElectionNoLeader")
	metrics := s.url("Metrics are served")
	s.g.Eventually(fetch(metrics)).WithTimeout(clitest.Timeout).Should(And(
		MatchRegexp(`election_standby{bucket="ALERT_DRILL",election="ElectionNoStandby",identity="alone"} 0`),
		MatchRegexp(`election_leader{bucket="ALERT_DRILL",election="ElectionNoStandby",identity="alone"} 1`),
		MatchRegexp(`election_healthy{bucket="ALERT_DRILL",election="ElectionNoLeader",identity="sick"} 0`),
		Not(ContainSubstring("ElectionPaused")),
	))
	s.g.Expect(s.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	s.g.Expect(s.cmd.Wait()).To(Succeed(), "an interrupt is the normal end")
}

func TestADrillOfAlertsTakesNoOtherFlags(t *testing.T) {
	g := NewWithT(t)
	for _, args := range [][]string{{"--alerts", ":0", "--rounds", "1"}, {"--alerts", ":0", "--processes"}, {"--alert", "ElectionNoLeader"}, {"--alerts", ":0", "--alert", "None"}, {"--alerts", "nowhere"}} {
		code, stdout, stderr := runInProcess(append([]string{"drill"}, args...)...)
		g.Expect(code).To(Equal(cli.ExitFailure), "%q", args)
		g.Expect(stdout).To(BeEmpty())
		g.Expect(stderr).To(ContainSubstring("--alert"), "%q", args)
	}
}
