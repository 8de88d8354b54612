package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
)

// noReaperVariable makes a process of these tests call neverReap.
const noReaperVariable = "ELECTION_TEST_ZOMBIES"

func init() {
	if os.Getenv(noReaperVariable) != "" {
		asProgram = neverReap
	}
}

// neverReap runs the command in its arguments. It inherits all orphans of that command, and never reaps them.
func neverReap() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = os.Unsetenv(noReaperVariable)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		panic(err)
	} else if ok {
		os.Exit(exit.ExitCode())
	}
	os.Exit(0)
}

// withoutReaper makes a call of run under a process that never reaps orphans.
func (w *invocation) withoutReaper() *invocation {
	w.T.Helper()
	self, err := os.Executable()
	w.Expect(err).NotTo(HaveOccurred())
	w.cmd.Args = append([]string{self, w.cmd.Path}, w.cmd.Args[1:]...)
	w.cmd.Path, w.cmd.Env = self, append(os.Environ(), noReaperVariable+"=no-reaper")
	return w
}

// TestOrphansAreReapedWhileTheProgramRuns has the program leave orphans in its group and outside of it, which exit while it runs.
func TestOrphansAreReapedWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *invocation) *invocation{
		"under a process that never reaps": (*invocation).withoutReaper,
		"as process 1":                     (*invocation).asProcess1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			w := prepare(f.prepare("jobs", "--", "bash", "-c", `
				parent=$(awk '/^PPid:/ {print $2}' /proc/$PPID/status)
				zombies() {
					awk -v run=$PPID -v parent=$parent 'FNR == 1 {z = 0} /^State:.Z/ {z = 1} /^PPid:/ && z && ($2 == run || $2 == parent)' /proc/[0-9]*/status 2>/dev/null
				}
				for i in 1 2 3 4; do (sleep 0.01 &); (setsid sleep 0.01 &); done
				sleep 0.2
				for i in {1..500}; do zombies | grep -q . || exit 9; sleep 0.01; done
				exit 8`))
			f.Expect(w.run()).To(Equal(9), w.stderr.String())
		})
	}
}

// asProcess1 makes a call of run as process 1 of a container, where the system allows that.
func (w *invocation) asProcess1() *invocation {
	w.T.Helper()
	unshare := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		w.T.Skipf("no namespace of processes can be made here: %v: %s", err, out)
	}
	path, err := exec.LookPath(unshare[0])
	w.Expect(err).NotTo(HaveOccurred())
	w.cmd.Args = append(unshare, append([]string{w.cmd.Path}, w.cmd.Args[1:]...)...)
	w.cmd.Path = path
	return w
}

// TestRunDoesNotWaitForZombies runs the program where no process reaps orphans, as in many containers.
func TestRunDoesNotWaitForZombies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *runFixture) error{
		"killed":     func(f *runFixture) error { return unix.Kill(f.pidIn("pid"), unix.SIGKILL) },
		"terminated": func(f *runFixture) error { return unix.Kill(f.pidIn("run"), unix.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRunFixture(t, 30*time.Second, "--interval", "1s")
			w := f.prepare("--grace", "9s", "jobs", "--", "bash", "-c",
				`sleep 0.01 & echo $! >zombie; echo $PPID >run; echo $$ >pid; exec sleep 1000`).withoutReaper()
			f.Expect(w.cmd.Start()).To(Succeed())
			zombie := f.pidIn("zombie")
			f.expectDead(zombie, clitest.Timeout)
			from := time.Now()
			f.Expect(end(f)).To(Succeed())
			f.Expect(w.exitCode()).To(BeNumerically(">", supervise.ExitSignal), w.stderr.String())
			f.Expect(time.Since(from)).To(BeNumerically("<", 9*time.Second), "sooner than the grace: %s", w.stderr)
			f.Expect(w.stderr.String()).NotTo(ContainSubstring("left behind"))
		})
	}
}

// TestNothingOfAProgramInANamespaceOutlivesAKillOfAllThatGuardIt kills run, its guardian and the deputy at once. One of the program's
// children has left the group.
func TestNothingOfAProgramInANamespaceOutlivesAKillOfAllThatGuardIt(t *testing.T) {
	t.Parallel()
	unshare := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespace of processes can be made here: %v: %s", err, out)
	}
	f := newLongLeaseFixture(t)
	w := f.prepare(slices.Concat([]string{"jobs", "--"}, unshare, []string{"bash", "-c", `sleep 1000 & setsid sleep 2000 & echo >ready; wait`})...)
	f.Expect(w.cmd.Start()).To(Succeed())
	f.awaitText("ready", "\n")
	var program []int
	f.Eventually(func() []int {
		program = nil
		for _, p := range descendants(w.cmd.Process.Pid) {
			if strings.Contains(p.args, " sleep ") && !strings.Contains(p.args, "bash") {
				program = append(program, p.pid)
			}
		}
		return program
	}).Should(HaveLen(2))
	w.awaitDeputy()
	victims := []int{w.cmd.Process.Pid}
	for _, p := range descendants(w.cmd.Process.Pid) {
		if strings.Contains(p.args, supervise.GuardianCommand) || strings.Contains(p.args, "deputy") {
			victims = append(victims, p.pid)
		}
	}
	f.Expect(victims).To(HaveLen(3))
	for _, pid := range victims {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range program {
		f.expectDead(pid, clitest.Timeout)
	}
}
