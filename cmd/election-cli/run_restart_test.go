//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli/supervise"
)

func TestRunCampaignsAgainAfterAnEviction(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 15*time.Second, "--interval", "1s") // after a deletion the winner stands down for one interval
	w := f.start(`echo $ELECTION_TOKEN >>tokens; sleep 1000`)
	f.awaitText("tokens", "\n")
	f.Expect(f.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
	var tokens []string
	f.Eventually(func() []string { tokens = strings.Fields(f.content("tokens")()); return tokens }).Should(HaveLen(2))
	f.Expect(tokens[1] > tokens[0]).To(BeTrue())
	w.terminate(143)
}

func TestRestartAfterAFailureIsInANewTerm(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -ge 4 || exit 1`, "--restart=on-failure")
	f.Expect(w.exitCode()).To(Equal(0))
	terms := strings.Fields(f.content("terms")())
	f.Expect(terms).To(HaveLen(4))
	f.Expect(terms[1]).NotTo(Equal(terms[0]), "the key was released in between")
	f.Expect(strings.Count(w.stderr.String(), "Program is started again")).To(Equal(3))
}

// TestMetricsCountAllTermsOfARun is what the alert ElectionFlapping relies on: a program that fails again and again.
func TestMetricsCountAllTermsOfARun(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"program that runs while this host leads": nil, "program that is signalled": {"--on-lost=signal"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			args := append([]string{"run", "-s", f.url, "--stand-down", "0s", "--interval", "1s", "--restart=on-failure", "--metrics", "127.0.0.1:0"}, flags...)
			program := `trap 'led=1' USR1; trap : USR2; trap 'exit 0' TERM; led=$ELECTION_TERM
while :; do if test "$led"; then mkdir 1 && exit 1; mkdir 2 && exit 1; mkdir 3 && exit 1; fi; sleep 0.02; done 2>/dev/null`
			cmd, _, _ := command(t, append(args, "jobs", "--", "bash", "-c", program)...)
			cmd.Dir = f.folder
			p := followLog(f, cmd)
			metrics := fetch(p.url("Metrics are served"))
			f.Eventually(func() string {
				return regexp.MustCompile(`(?m)^election_transitions_total{.*to="leader"}.*$`).FindString(metrics())
			}).Should(HaveSuffix(" 4"))
		})
	}
}

func TestRestartWithOnExitKeepIsInTheSameTerm(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	started := time.Now()
	w := f.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -lt 5 || sleep 1000`, "--restart=always", "--on-exit=keep")
	f.Eventually(func() []string { return strings.Fields(f.content("terms")()) }).Should(HaveLen(5))
	f.Expect(time.Since(started)).To(BeNumerically(">=", (100+200+400+800)*time.Millisecond/2), "the delays grow")
	terms := strings.Fields(f.content("terms")())
	f.Expect(terms[4]).To(Equal(terms[0]))
	w.terminate(143)
}

func TestRunThatIsInterruptedLogsNoRestart(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--restart=always"}, {"--restart=always", "--on-lost=signal"}} {
		f := newLongLeaseFixture(t)
		w := f.start(`trap 'exit 0' TERM; trap : USR1 USR2; echo >ready; while :; do sleep 0.02; done`, flags...)
		f.awaitText("ready", "\n")
		w.terminate(0)
		f.Expect(w.stderr.String()).NotTo(ContainSubstring("started again"))
	}
}

func TestProgramThatIsMissingIsStartedOnceItIsInstalled(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--restart=on-failure", "jobs", "--", f.file("program"))
	followLog(f, w.cmd).says("Program not started")
	f.Expect(os.WriteFile(f.file("installing"), []byte("#!/bin/sh\nexit 0\n"), 0o700)).To(Succeed())
	f.Expect(os.Rename(f.file("installing"), f.file("program"))).To(Succeed())
	f.Expect(w.exitCode()).To(Equal(0))
}

// TestProgramThatStaysStoppedLosesLeadership has a program stop itself, as one does that reads the terminal from the background.
func TestProgramThatStaysStoppedLosesLeadership(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 5*time.Second, "--interval", "1s")
	one := f.start(`echo $$ >pid; kill -STOP $$; sleep 1000`)
	pid := f.pidIn("pid")
	two := f.start(`kill -0 ` + fmt.Sprint(pid) + ` && echo >still; echo >other; sleep 1000`)
	f.awaitText("other", "\n")
	f.Expect(f.content("still")()).To(BeEmpty())
	one.signal(unix.SIGTERM)
	two.signal(unix.SIGTERM)
	f.Expect(one.exitCode()).To(BeNumerically(">", 128))
	f.Expect(one.stderr.String()).To(And(ContainSubstring("Program is stopped"), ContainSubstring("giving up leadership")))
	f.Expect(two.exitCode()).To(Equal(143))
}

func TestProgramInSignalModeIsNotifiedOfWinAndLoss(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 15*time.Second, "--interval", "1s") // after a deletion the winner stands down for one interval
	w := f.start(`echo "term ${ELECTION_TERM-none}" >>notified; trap 'echo won >>notified' USR1; trap 'echo lost >>notified' HUP; trap 'exit 0' TERM
		while :; do sleep 0.02; done`, "--on-lost=signal", "--lost", "HUP")
	f.awaitText("notified", "term none\nwon\n")
	f.Expect(f.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
	f.awaitText("notified", "term none\nwon\nlost\nwon\n")
	w.terminate(0)
	f.Expect(f.content("notified")()).To(Equal("term none\nwon\nlost\nwon\n"))
	f.expectReleased()
}

func TestProgramInSignalModeStartsWithoutAServer(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepareWithServer("nats://127.0.0.1:1", "--on-lost=signal", "jobs", "--", "sh", "-c", "echo here; exit 8")
	f.Expect(w.run()).To(Equal(8))
	f.Expect(w.stdout.String()).To(Equal("here\n"))
}

func TestProgramInSignalModeIsNotifiedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{supervise.OnExitKeep, supervise.OnExitRelease} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			w := f.start(`trap 'echo won >>notified; exit 1' USR1; trap : USR2; while :; do sleep 0.02; done`,
				"--on-lost=signal", "--restart=on-failure", "--on-exit="+mode, "-v")
			for n := range 3 {
				f.awaitText("notified", strings.Repeat("won\n", n+1))
			}
			w.signal(unix.SIGTERM)
			f.Expect(w.exitCode()).To(BeNumerically(">", 0))
		})
	}
}
