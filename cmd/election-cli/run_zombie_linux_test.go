package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// zombieRole tells a process of these tests what it is.
const zombieRole = "ELECTION_TEST_ZOMBIES"

func init() {
	switch os.Getenv(zombieRole) {
	case "no-reaper":
		asProgram = neverReap
	case "headless":
		runtime.LockOSThread() // the main thread is that of the main goroutine
		asProgram = loseMainThread
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

// loseMainThread ends the main thread of this process while another goes on.
func loseMainThread() {
	go func() {
		for {
			_ = unix.Nanosleep(&unix.Timespec{Sec: 1000}, nil)
		}
	}()
	_, _ = os.Stdout.WriteString("ready\n")
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
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
			a.isDead(zombie, patience)
			from := time.Now()
			a.g.Expect(end(a)).To(Succeed())
			a.g.Expect(w.code()).To(BeNumerically(">", exitSignal), w.stderr.String())
			a.g.Expect(time.Since(from)).To(BeNumerically("<", killPatience/2), w.stderr.String())
			a.g.Expect(w.stderr.String()).NotTo(ContainSubstring("left behind"))
		})
	}
}

func TestAProcessWhoseMainThreadHasEndedIsNoZombie(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(self)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), zombieRole+"=headless"), &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	pid := cmd.Process.Pid
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("ready\n"))
	g.Eventually(func() string { return stateOf(pid) }).WithTimeout(patience).Should(Equal("Z"))
	g.Expect(groupLives(pid)).To(BeTrue())
	g.Expect(cmd.Process.Kill()).To(Succeed())
	g.Eventually(func() bool { return groupLives(pid) }).WithTimeout(patience).Should(BeFalse(), "nobody has waited for it")
	g.Expect(unix.Kill(-pid, 0)).To(Succeed())
	_ = cmd.Wait()
}

// stateOf returns the state of a process as the system shows it.
func stateOf(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
