package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/supervise"
)

// zombieRole tells a process of these tests what it is.
const zombieRole = "ELECTION_TEST_ZOMBIES"

func init() {
	if os.Getenv(zombieRole) != "" {
		asProgram = neverReap
	}
}

// neverReap runs the command of its arguments, and becomes the parent of all orphans below, for which it never waits.
func neverReap() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = os.Unsetenv(zombieRole)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		panic(err)
	} else if ok {
		os.Exit(exit.ExitCode())
	}
	os.Exit(0)
}

// withoutReaper has a call of run be made where nobody waits for orphans.
func (w *wrapper) withoutReaper() *wrapper {
	w.t.Helper()
	self, err := os.Executable()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.cmd.Args = append([]string{self, w.cmd.Path}, w.cmd.Args[1:]...)
	w.cmd.Path, w.cmd.Env = self, append(os.Environ(), zombieRole+"=no-reaper")
	return w
}

// TestZombiesOfAProgramAreNotWaitedFor has process 1, as far as the program knows, wait for no orphan.
func TestZombiesOfAProgramAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a *runArena) error{
		"killed":      func(a *runArena) error { return unix.Kill(a.pid("pid"), unix.SIGKILL) },
		"told to end": func(a *runArena) error { return unix.Kill(a.pid("run"), unix.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := unhurried(t)
			w := a.prepare("--grace", "4s", "jobs", "--", "bash", "-c",
				`sleep 0.01 & echo $! >zombie; echo $PPID >run; echo $$ >pid; exec sleep 1000`).withoutReaper()
			a.g.Expect(w.cmd.Start()).To(Succeed())
			zombie := a.pid("zombie")
			a.isDead(zombie, clitest.Patience)
			from := time.Now()
			a.g.Expect(end(a)).To(Succeed())
			a.g.Expect(w.code()).To(BeNumerically(">", supervise.ExitSignal), w.stderr.String())
			a.g.Expect(time.Since(from)).To(BeNumerically("<", 5*time.Second/2), w.stderr.String())
			a.g.Expect(w.stderr.String()).NotTo(ContainSubstring("left behind"))
		})
	}
}
