//go:build linux || darwin

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/supervise"
)

func TestProgramAndItsChildrenAreKilledWhenRunIsKilled(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 2*time.Second)
	w := f.start(`trap '' TERM; (trap '' TERM HUP; while :; do sleep 0.05; done) & echo $! >child; echo $$ >pid; wait`)
	program, child := f.pidIn("pid"), f.pidIn("child")
	other := f.start(`echo >other; sleep 1000`)
	killed := time.Now()
	w.signal(unix.SIGKILL)
	f.expectDead(program, clitest.Timeout)
	f.expectDead(child, clitest.Timeout)
	t.Logf("the program and its child are dead after %v", time.Since(killed))
	f.awaitText("other", "\n")
	t.Logf("another host leads after %v", time.Since(killed))
	other.signal(unix.SIGTERM)
	f.g.Expect(other.exitCode()).To(Equal(143))
}

func TestProgramIsDeadBeforeTheLeaseEndsWhenRunIsStopped(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 5*time.Second)
	w := f.prepare("jobs", "--", "sh", "-c", `echo $ELECTION_TERM >>terms; echo $$ >pid; exec sleep 1000`)
	lines, err := linesOf(&w.cmd.Stderr, w.cmd.StderrPipe)
	f.g.Expect(err).NotTo(HaveOccurred())
	f.g.Expect(w.cmd.Start()).To(Succeed())
	f.g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(ContainSubstring("Program started")))
	pid := f.pidIn("pid")
	stopped := time.Now()
	w.signal(unix.SIGSTOP)
	f.expectDead(pid, clitest.Timeout)
	f.g.Expect(time.Since(stopped)).To(BeNumerically("<", 7*time.Second), "the lease began before run was stopped; the rest is for a busy host")
	w.signal(unix.SIGCONT)
	f.g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(MatchRegexp(`its guardian killed the program meanwhile .*ago=\d`)))
	f.g.Eventually(func() []string { return strings.Fields(f.content("terms")()) }).WithTimeout(clitest.Timeout).Should(HaveLen(2), "run campaigns again, and leads")
	w.signal(unix.SIGTERM)
	f.g.Expect(w.exitCode()).To(Equal(143))
}

func TestGuardianThatEndsIsReplaced(t *testing.T) {
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("this system has no ps")
	}
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "sh", "-c", `(trap '' HUP; while :; do sleep 0.05; done) & echo $! >child; wait`)
	lines, err := linesOf(&w.cmd.Stderr, w.cmd.StderrPipe)
	f.g.Expect(err).NotTo(HaveOccurred())
	f.g.Expect(w.cmd.Start()).To(Succeed())
	child := f.pidIn("child")
	first := f.guardianOf(w)
	f.g.Expect(first).NotTo(BeZero())
	f.g.Expect(unix.Kill(first, unix.SIGKILL)).To(Succeed())
	f.g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(ContainSubstring("Guardian ended")))
	f.g.Eventually(func() int { return f.guardianOf(w) }).WithTimeout(clitest.Timeout).ShouldNot(Or(BeZero(), Equal(first)))
	w.signal(unix.SIGKILL)
	f.expectDead(child, clitest.Timeout)
}

// guardianOf returns the process number of the guardian of a call of run; 0 if there is none.
func (f *runFixture) guardianOf(w *invocation) int {
	for _, line := range strings.Split(listProcesses(), "\n") {
		var pid, parent int
		if n, _ := fmt.Sscan(line, &pid, &parent); n == 2 && parent == w.cmd.Process.Pid && strings.Contains(line, supervise.GuardianCommand) {
			return pid
		}
	}
	return 0
}

// listProcesses returns the number, the parent and the command line of each process.
func listProcesses() string {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	return string(out)
}
