//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/test/clitest"
)

func TestRunCampaignsAgainAfterAnEviction(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 15*time.Second, "--interval", "1s") // after a deletion the winner stands down for one interval
	w := f.start(`echo $ELECTION_TOKEN >>tokens; sleep 1000`)
	f.awaitText("tokens", "\n")
	f.g.Expect(f.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	var tokens []string
	f.g.Eventually(func() []string { tokens = strings.Fields(f.content("tokens")()); return tokens }).WithTimeout(clitest.Timeout).Should(HaveLen(2))
	f.g.Expect(tokens[1] > tokens[0]).To(BeTrue())
	w.signal(unix.SIGTERM)
	f.g.Expect(w.exitCode()).To(Equal(143))
}

func TestRestartAfterAFailureIsInANewTerm(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -ge 4 || exit 1`, "--restart=on-failure")
	f.g.Expect(w.exitCode()).To(Equal(0))
	terms := strings.Fields(f.content("terms")())
	f.g.Expect(terms).To(HaveLen(4))
	f.g.Expect(terms[1]).NotTo(Equal(terms[0]), "the key was released in between")
	f.g.Expect(strings.Count(w.stderr.String(), "Program is started again")).To(Equal(3))
}

func TestRestartWithOnExitKeepIsInTheSameTerm(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	started := time.Now()
	w := f.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -lt 5 || sleep 1000`, "--restart=always", "--on-exit=keep")
	f.g.Eventually(func() []string { return strings.Fields(f.content("terms")()) }).WithTimeout(clitest.Timeout).Should(HaveLen(5))
	f.g.Expect(time.Since(started)).To(BeNumerically(">=", (100+200+400+800)*time.Millisecond/2), "the delays grow")
	terms := strings.Fields(f.content("terms")())
	f.g.Expect(terms[4]).To(Equal(terms[0]))
	w.signal(unix.SIGTERM)
	f.g.Expect(w.exitCode()).To(Equal(143))
}

func TestRunThatIsInterruptedLogsNoRestart(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--restart=always"}, {"--restart=always", "--on-lost=signal"}} {
		f := newLongLeaseFixture(t)
		w := f.start(`trap 'exit 0' TERM; trap : USR1 USR2; echo >ready; while :; do sleep 0.02; done`, flags...)
		f.awaitText("ready", "\n")
		w.signal(unix.SIGTERM)
		f.g.Expect(w.exitCode()).To(Equal(0), w.stderr.String())
		f.g.Expect(w.stderr.String()).NotTo(ContainSubstring("started again"))
	}
}

func TestProgramThatIsMissingIsStartedOnceItIsInstalled(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--restart=on-failure", "jobs", "--", f.file("program"))
	lines, err := linesOf(&w.cmd.Stderr, w.cmd.StderrPipe)
	f.g.Expect(err).NotTo(HaveOccurred())
	f.g.Expect(w.cmd.Start()).To(Succeed())
	f.g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(ContainSubstring("Program not started")))
	f.g.Expect(os.WriteFile(f.file("installing"), []byte("#!/bin/sh\nexit 0\n"), 0o700)).To(Succeed())
	f.g.Expect(os.Rename(f.file("installing"), f.file("program"))).To(Succeed())
	f.g.Expect(w.exitCode()).To(Equal(0))
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
	f.g.Expect(f.content("still")()).To(BeEmpty())
	one.signal(unix.SIGTERM)
	two.signal(unix.SIGTERM)
	f.g.Expect(one.exitCode()).To(BeNumerically(">", 128))
	f.g.Expect(one.stderr.String()).To(And(ContainSubstring("Program is stopped"), ContainSubstring("giving up leadership")))
	f.g.Expect(two.exitCode()).To(Equal(143))
}
