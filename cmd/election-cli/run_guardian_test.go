//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/proctest"
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
	other.terminate(143)
}

// TestProgramAndItsChildrenAreKilledWhenRunAndItsGuardianAreKilledTogether kills whatever somebody may kill together with run.
func TestProgramAndItsChildrenAreKilledWhenRunAndItsGuardianAreKilledTogether(t *testing.T) {
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("this system has no ps")
	}
	t.Parallel()
	for name, victim := range map[string]func(p psProcess, run int) bool{
		"run and its guardian": func(p psProcess, run int) bool {
			return strings.Contains(p.args, supervise.GuardianCommand) && p.parent == run
		},
		"the name of the command":              func(p psProcess, _ int) bool { return strings.Contains(p.args, "election-cli") },
		"run, its program, and other children": func(p psProcess, run int) bool { return p.parent == run },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			w := f.start(`(trap '' HUP TERM; while :; do sleep 0.05; done) & echo $! >child; wait`)
			child, run := f.pidIn("child"), w.cmd.Process.Pid
			w.awaitDeputy()
			victims := []int{run}
			for _, p := range descendants(run) { // nothing else on this machine is killed
				if victim(p, run) {
					victims = append(victims, p.pid)
				}
			}
			f.Expect(len(victims)).To(BeNumerically(">=", 2))
			for _, pid := range victims {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			f.expectDead(child, clitest.Timeout)
		})
	}
}

func TestProgramIsDeadBeforeTheLeaseEndsWhenRunIsStopped(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 5*time.Second)
	w := f.prepare("jobs", "--", "sh", "-c", `echo $ELECTION_TERM >>terms; echo $$ >pid; exec sleep 1000`)
	log := followLog(f, w.cmd)
	log.says("Program started")
	pid := f.pidIn("pid")
	stopped := time.Now()
	w.signal(unix.SIGSTOP)
	f.expectDead(pid, clitest.Timeout)
	f.Expect(time.Since(stopped)).To(BeNumerically("<", 7*time.Second), "the lease began before run was stopped; the rest is for a busy host")
	w.signal(unix.SIGCONT)
	f.Expect(log.says("its guardian killed the program meanwhile ")).To(MatchRegexp(`ago=\d`))
	f.Eventually(func() []string { return strings.Fields(f.content("terms")()) }).Should(HaveLen(2), "run campaigns again, and leads")
	w.terminate(143)
}

// TestProgramIsKilledAtOnceAfterAFreezeOfItsHost stops all processes of a host for longer than the lease, and continues the program first.
func TestProgramIsKilledAtOnceAfterAFreezeOfItsHost(t *testing.T) {
	inRealTime(t)
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("this system has no ps")
	}
	t.Parallel()
	f := newRunFixture(t, 2*time.Second)
	self, err := os.Executable()
	f.Expect(err).NotTo(HaveOccurred())
	w := f.prepare("jobs", "--", self)
	w.cmd.Env = append(os.Environ(), clockWriterVariable+"="+f.file("clock"))
	f.Expect(w.cmd.Start()).To(Succeed())
	f.awaitText("clock", "\n")
	w.awaitDeputy()
	program, run := 0, w.cmd.Process.Pid
	f.Eventually(func() bool { // on a busy host run may have ended the program, and starts it again
		proctest.Stop(t, run) // and so starts and reaps nothing any more
		lifetimes := parseLifetimes(f.content("clock")())
		if program = lifetimes[len(lifetimes)-1].pid; !proctest.IsRunning(program) {
			w.signal(unix.SIGCONT)
			return false
		}
		return true
	}).Should(BeTrue())
	family := descendants(run)
	f.Expect(len(family)).To(BeNumerically(">=", 3), "the program, the guardian and its deputy")
	for _, p := range family {
		f.Expect(unix.Kill(p.pid, unix.SIGSTOP)).To(Succeed())
	}
	family = append(family, psProcess{pid: run})
	other := f.start(`echo >other; exec sleep 1000`)
	f.awaitText("other", "\n")
	thawed := host.Clock()
	f.Expect(unix.Kill(program, unix.SIGCONT)).To(Succeed())
	for _, p := range family {
		f.Expect(unix.Kill(p.pid, unix.SIGCONT)).To(Succeed())
	}
	f.expectDead(program, clitest.Timeout)
	lifetimes := parseLifetimes(f.content("clock")())
	t.Logf("the program ran for %v beside the next one", max(lifetimes[len(lifetimes)-1].last-thawed, 0))
	other.terminate(143)
}

func TestGuardianThatEndsIsReplaced(t *testing.T) {
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("this system has no ps")
	}
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "sh", "-c", `(trap '' HUP; while :; do sleep 0.05; done) & echo $! >child; wait`)
	log := followLog(f, w.cmd)
	child := f.pidIn("child")
	first := f.guardianOf(w)
	f.Expect(first).NotTo(BeZero())
	f.Expect(unix.Kill(first, unix.SIGKILL)).To(Succeed())
	log.says("Guardian ended")
	f.Eventually(func() int { return f.guardianOf(w) }).ShouldNot(Or(BeZero(), Equal(first)))
	w.signal(unix.SIGKILL)
	f.expectDead(child, clitest.Timeout)
}

// guardianOf returns the process number of the guardian of a call of run; 0 if there is none.
func (f *runFixture) guardianOf(w *invocation) int {
	for _, p := range parseProcesses(listProcesses()) {
		if p.parent == w.cmd.Process.Pid && strings.Contains(p.args, supervise.GuardianCommand) {
			return p.pid
		}
	}
	return 0
}

// awaitDeputy waits until the guardian of a call of run has its deputy: the guardian starts it while the program starts.
func (w *invocation) awaitDeputy() {
	w.T.Helper()
	w.Eventually(func() bool {
		return slices.ContainsFunc(descendants(w.cmd.Process.Pid), func(p psProcess) bool { return strings.Contains(p.args, "deputy of-run") })
	}).Should(BeTrue())
}

// listProcesses returns the number, the parent and the command line of each process.
func listProcesses() string {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	return string(out)
}

// psProcess is a line of listProcesses.
type psProcess struct {
	pid, parent int
	args        string // begins with the two numbers
}

// parseProcesses parses the output of listProcesses.
func parseProcesses(list string) (all []psProcess) {
	for line := range strings.Lines(list) {
		p := psProcess{args: line}
		if n, _ := fmt.Sscan(line, &p.pid, &p.parent); n == 2 {
			all = append(all, p)
		}
	}
	return all
}

// descendants returns the children of a process, their children, and so on.
func descendants(ancestor int) (all []psProcess) {
	list := parseProcesses(listProcesses())
	found := map[int]bool{ancestor: true}
	for n := -1; n != len(all); {
		n = len(all)
		for _, p := range list {
			if found[p.parent] && !found[p.pid] {
				found[p.pid] = true
				all = append(all, p)
			}
		}
	}
	return all
}
