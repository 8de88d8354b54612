//go:build linux || darwin

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/supervise"
)

func TestSignalsArePassedOnToTheProgram(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`for s in HUP USR1 USR2; do trap "echo $s >>told" $s; done
		trap 'echo INT >>told; exit 3' INT
		echo >ready; while :; do sleep 0.02; done`)
	a.await("ready", "\n")
	for name, s := range map[string]syscall.Signal{"HUP": unix.SIGHUP, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2} {
		w.sends(s)
		a.await("told", name+"\n")
	}
	w.sends(unix.SIGINT)
	a.g.Expect(w.code()).To(Equal(3))
	a.g.Expect(a.reads("told")()).To(HaveSuffix("INT\n"))
	a.g.Expect(strings.Fields(a.reads("told")())).To(HaveLen(4), "each was passed on once")
}

func TestAProgramThatEndsInOrderWhenToldGivesItsCode(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`trap 'echo TERM >>told; exit 0' TERM; echo >ready; while :; do sleep 0.02; done`, "--restart=always")
	a.await("ready", "\n")
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(0))
	a.g.Expect(a.reads("told")()).To(Equal("TERM\n"))
	a.isFree()
}

func TestAProgramThatIgnoresTermIsKilledBeforeTheKeyIsReleased(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`trap '' TERM; echo $$ >pid; while :; do date +%s%N >>ticks; done`, "--grace", "150ms")
	pid := a.pid("pid")
	a.start(`kill -0 `+fmt.Sprint(pid)+` && echo >still; echo >other; sleep 1000`, "--max-wait", "20s")
	told := time.Now()
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(137), w.stderr.String())
	a.g.Expect(time.Since(told)).To(BeNumerically(">=", 150*time.Millisecond), "it had its grace")
	a.await("other", "\n")
	a.g.Expect(a.reads("still")()).To(BeEmpty(), "nothing is left of the program when another leads")
}

func TestAProgramThatIgnoresIntIsToldByTerm(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`trap '' INT; trap 'exit 4' TERM; echo >ready; while :; do sleep 0.02; done`)
	a.await("ready", "\n")
	w.sends(unix.SIGINT)
	a.g.Expect(w.code()).To(Equal(4))
}

func TestWhatAProgramStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`(trap '' TERM HUP; while :; do sleep 0.05; done) & echo $! >left; exit 6`)
	a.g.Expect(w.code()).To(Equal(6))
	a.g.Expect(alive(a.pid("left"))).To(BeFalse())
}

func TestWhatAProgramStartedHasTheGraceToo(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`trap 'exit 5' TERM
		(trap 'sleep 0.1; echo >wound-up; exit' TERM; echo >ready; while :; do sleep 0.02; done) & while :; do sleep 0.02; done`)
	a.await("ready", "\n")
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(5))
	a.g.Expect(a.reads("wound-up")()).To(Equal("\n"))
}

func TestAnotherLeadsAtOnceWhenTheProgramIsKilled(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	var delays []time.Duration
	for range 5 {
		a := &runArena{t: t, g: a.g, url: a.url, bucket: a.bucket, folder: t.TempDir(), flags: a.flags}
		one := a.start(`echo $$ >one; exec sleep 1000`)
		pid := a.pid("one")
		two := a.prepare("jobs", "--", "sh", "-c", `echo $$ >two; exec sleep 1000`)
		lines, err := progressOf(&two.cmd.Stderr, two.cmd.StderrPipe)
		a.g.Expect(err).NotTo(HaveOccurred())
		a.g.Expect(two.cmd.Start()).To(Succeed())
		a.g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(ContainSubstring("Leader seen")))
		killed := time.Now()
		a.g.Expect(unix.Kill(pid, unix.SIGKILL)).To(Succeed())
		a.g.Eventually(a.reads("two")).WithTimeout(clitest.Patience).WithPolling(time.Millisecond).ShouldNot(BeEmpty())
		delays = append(delays, time.Since(killed))
		a.g.Expect(one.code()).To(Equal(137))
		two.sends(unix.SIGTERM)
		a.g.Expect(two.code()).To(Equal(143))
	}
	t.Logf("from KILL of the program to the start of another: %v", delays)
	for _, d := range delays {
		a.g.Expect(d).To(BeNumerically("<", 2*time.Second), "sooner than any lease ends")
	}
}

func TestAProgramEndsWhenRunIsKilled(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 2*time.Second)
	w := a.start(`trap '' TERM; (trap '' TERM HUP; while :; do sleep 0.05; done) & echo $! >left; echo $$ >pid; wait`)
	program, left := a.pid("pid"), a.pid("left")
	other := a.start(`echo >other; sleep 1000`)
	killed := time.Now()
	w.sends(unix.SIGKILL)
	a.isDead(program, clitest.Patience)
	a.isDead(left, clitest.Patience)
	t.Logf("program and what it started are dead after %v", time.Since(killed))
	a.await("other", "\n")
	t.Logf("another leads after %v", time.Since(killed))
	other.sends(unix.SIGTERM)
	a.g.Expect(other.code()).To(Equal(143))
}

func TestAProgramEndsBeforeTheLeaseIsOverWhenRunIsStopped(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 5*time.Second)
	w := a.prepare("jobs", "--", "sh", "-c", `echo $ELECTION_TERM >>terms; echo $$ >pid; exec sleep 1000`)
	lines, err := progressOf(&w.cmd.Stderr, w.cmd.StderrPipe)
	a.g.Expect(err).NotTo(HaveOccurred())
	a.g.Expect(w.cmd.Start()).To(Succeed())
	a.g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(ContainSubstring("Program started")))
	pid := a.pid("pid")
	stopped := time.Now()
	w.sends(unix.SIGSTOP)
	a.isDead(pid, clitest.Patience)
	a.g.Expect(time.Since(stopped)).To(BeNumerically("<", 7*time.Second), "the lease cannot have begun later than it was stopped, and a busy host is late")
	w.sends(unix.SIGCONT)
	a.g.Eventually(func() []string { return strings.Fields(a.reads("terms")()) }).WithTimeout(clitest.Patience).Should(HaveLen(2), "it stands again, and leads")
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(143))
}

func TestAGuardianThatEndsIsReplaced(t *testing.T) {
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("nothing here lists processes")
	}
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("jobs", "--", "sh", "-c", `(trap '' HUP; while :; do sleep 0.05; done) & echo $! >left; wait`)
	lines, err := progressOf(&w.cmd.Stderr, w.cmd.StderrPipe)
	a.g.Expect(err).NotTo(HaveOccurred())
	a.g.Expect(w.cmd.Start()).To(Succeed())
	left := a.pid("left")
	first := a.guardianOf(w)
	a.g.Expect(first).NotTo(BeZero())
	a.g.Expect(unix.Kill(first, unix.SIGKILL)).To(Succeed())
	a.g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(ContainSubstring("Guardian ended")))
	a.g.Eventually(func() int { return a.guardianOf(w) }).WithTimeout(clitest.Patience).ShouldNot(Or(BeZero(), Equal(first)))
	w.sends(unix.SIGKILL)
	a.isDead(left, clitest.Patience)
}

// guardianOf returns the guardian of a call of run; 0 if it has none.
func (a *runArena) guardianOf(w *wrapper) int {
	for _, line := range strings.Split(listProcesses(), "\n") {
		var pid, parent int
		if n, _ := fmt.Sscan(line, &pid, &parent); n == 2 && parent == w.cmd.Process.Pid && strings.Contains(line, supervise.GuardianCommand) {
			return pid
		}
	}
	return 0
}

func TestAProgramThatWasEvictedStandsAgain(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 5*time.Second, "--interval", "1s") // the winner stands down that long after a deletion
	w := a.start(`echo $ELECTION_TOKEN >>tokens; sleep 1000`)
	a.await("tokens", "\n")
	a.g.Expect(a.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	var tokens []string
	a.g.Eventually(func() []string { tokens = strings.Fields(a.reads("tokens")()); return tokens }).WithTimeout(clitest.Patience).Should(HaveLen(2))
	a.g.Expect(tokens[1] > tokens[0]).To(BeTrue())
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(143))
}

func TestAProgramIsStartedAgainAfterAFailureInAnotherTerm(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -ge 4 || exit 1`, "--restart=on-failure")
	a.g.Expect(w.code()).To(Equal(0))
	terms := strings.Fields(a.reads("terms")())
	a.g.Expect(terms).To(HaveLen(4))
	a.g.Expect(terms[1]).NotTo(Equal(terms[0]), "leadership was given up between")
	a.g.Expect(strings.Count(w.stderr.String(), "Program is started again")).To(Equal(3))
}

func TestAProgramIsStartedAgainInTheSameTermIfThatIsKept(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	started := time.Now()
	w := a.start(`echo $ELECTION_TERM >>terms; test $(wc -l <terms) -lt 5 || sleep 1000`, "--restart=always", "--on-exit=keep")
	a.g.Eventually(func() []string { return strings.Fields(a.reads("terms")()) }).WithTimeout(clitest.Patience).Should(HaveLen(5))
	a.g.Expect(time.Since(started)).To(BeNumerically(">=", (100+200+400+800)*time.Millisecond/2), "the pauses grow")
	terms := strings.Fields(a.reads("terms")())
	a.g.Expect(terms[4]).To(Equal(terms[0]))
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(143))
}

func TestAProgramThatRunsAllTheTimeIsToldWhetherItLeads(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 5*time.Second, "--interval", "1s") // the winner stands down that long after a deletion
	w := a.start(`echo "term ${ELECTION_TERM-none}" >>told; trap 'echo won >>told' USR1; trap 'echo lost >>told' HUP; trap 'exit 0' TERM
		while :; do sleep 0.02; done`, "--on-lost=signal", "--lost", "HUP")
	a.await("told", "term none\nwon\n")
	a.g.Expect(a.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	a.await("told", "term none\nwon\nlost\nwon\n")
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(0))
	a.g.Expect(a.reads("told")()).To(Equal("term none\nwon\nlost\nwon\n"))
	a.isFree()
}

func TestAProgramThatRunsAllTheTimeIsStartedWithoutAServer(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepareOn("nats://127.0.0.1:1", "--on-lost=signal", "jobs", "--", "sh", "-c", "echo here; exit 8")
	a.g.Expect(w.runs()).To(Equal(8))
	a.g.Expect(w.stdout.String()).To(Equal("here\n"))
}

func TestAProgramThatRunsAllTheTimeAndIsStartedAgainIsToldAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{supervise.OnExitKeep, supervise.OnExitRelease} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := unhurried(t)
			w := a.start(`trap 'echo won >>told; exit 1' USR1; trap : USR2; while :; do sleep 0.02; done`,
				"--on-lost=signal", "--restart=on-failure", "--on-exit="+mode)
			a.await("told", "won\nwon\nwon\n")
			w.sends(unix.SIGTERM)
			a.g.Expect(w.code()).To(BeNumerically(">", 0))
		})
	}
}

// listProcesses returns the number, the parent and the command of each process.
func listProcesses() string {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	return string(out)
}

func TestARunThatEndsDoesNotSayThatItsProgramIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--restart=always"}, {"--restart=always", "--on-lost=signal"}} {
		a := unhurried(t)
		w := a.start(`trap 'exit 0' TERM; trap : USR1 USR2; echo >ready; while :; do sleep 0.02; done`, flags...)
		a.await("ready", "\n")
		w.sends(unix.SIGTERM)
		a.g.Expect(w.code()).To(Equal(0), w.stderr.String())
		a.g.Expect(w.stderr.String()).NotTo(ContainSubstring("started again"))
	}
}
