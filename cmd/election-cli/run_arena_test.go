//go:build linux || darwin

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/clitest"
)

// runArena is a server with a bucket for elections.
type runArena struct {
	t      *testing.T
	g      Gomega
	url    string
	bucket *election.Bucket
	folder string
	flags  []string
}

// newRunArena returns one whose calls of run have the given flags.
func newRunArena(t *testing.T, ttl time.Duration, flags ...string) *runArena {
	t.Helper()
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // what is caught here is not ignored there, as it were under nohup
	a := newArena(t, ttl)
	return &runArena{t: t, g: a, url: a.Server.URL(), bucket: a.Bucket, folder: t.TempDir(), flags: flags}
}

// unhurried is an arena for tests that are not about the end of a lease: no host is so late that a leader loses its own, and a
// winner leads a second after it has won.
func unhurried(t *testing.T) *runArena {
	t.Helper()
	return newRunArena(t, 10*time.Second, "--interval", "1s")
}

// file returns a path for the programs to write to.
func (a *runArena) file(name string) string { return filepath.Join(a.folder, name) }

// reads returns what a file says by now.
func (a *runArena) reads(name string) func() string {
	return func() string {
		text, _ := os.ReadFile(a.file(name))
		return string(text)
	}
}

// wrapper is a call of run.
type wrapper struct {
	*runArena
	cmd            *exec.Cmd
	stdout, stderr *bytes.Buffer
}

// prepare returns a call of run with the given flags and program, which has not been started.
func (a *runArena) prepare(args ...string) *wrapper {
	return a.prepareOn(a.url, args...)
}

// prepareOn does so for a server at the given address.
func (a *runArena) prepareOn(url string, args ...string) *wrapper {
	cmd, stdout, stderr := command(a.t, slices.Concat([]string{"run", "-s", url, "--stand-down", "0s"}, a.flags, args)...)
	cmd.Dir = a.folder
	cmd.WaitDelay = clitest.Patience // should a program outlive it, the test fails rather than hangs
	return &wrapper{runArena: a, cmd: cmd, stdout: stdout, stderr: stderr}
}

// start calls run with a shell script for a program.
func (a *runArena) start(script string, flags ...string) *wrapper {
	a.t.Helper()
	w := a.prepare(append(flags, "jobs", "--", "bash", "-c", script)...)
	a.g.Expect(w.cmd.Start()).To(Succeed())
	return w
}

// code waits for its end and returns its exit code.
func (w *wrapper) code() int {
	w.t.Helper()
	_ = w.cmd.Wait()
	if w.cmd.ProcessState.ExitCode() < 0 {
		w.t.Log(w.cmd.ProcessState.String())
	}
	return w.cmd.ProcessState.ExitCode()
}

// runs calls run and returns its exit code.
func (w *wrapper) runs() int {
	w.t.Helper()
	w.g.Expect(w.cmd.Start()).To(Succeed())
	return w.code()
}

func (w *wrapper) sends(s syscall.Signal) {
	w.t.Helper()
	w.g.Expect(w.cmd.Process.Signal(s)).To(Succeed())
}

// await waits until a file of the runArena says something.
func (a *runArena) await(name, text string) {
	a.t.Helper()
	a.g.Eventually(a.reads(name)).WithTimeout(clitest.Patience).WithPolling(5 * time.Millisecond).Should(ContainSubstring(text))
}

// pid returns the process whose number a program wrote to a file.
func (a *runArena) pid(name string) int {
	a.t.Helper()
	a.await(name, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(a.reads(name)()))
	a.g.Expect(err).NotTo(HaveOccurred())
	return pid
}

// alive says whether a process runs; one that has ended and was not waited for does not.
func alive(pid int) bool {
	if unix.Kill(pid, 0) != nil {
		return false
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output() // where there is no /proc
	return len(out) > 0 && out[0] != 'Z'
}

func (a *runArena) isDead(pid int, within time.Duration) {
	a.t.Helper()
	a.g.Eventually(func() bool { return alive(pid) }).WithTimeout(within).WithPolling(time.Millisecond).Should(BeFalse(), "process %d", pid)
}

// isFree expects that nobody leads, and that whoever comes does so at once.
func (a *runArena) isFree() {
	a.t.Helper()
	w := a.prepare("-v", "--no-wait", "jobs", "--", "true")
	a.g.Expect(w.runs()).To(Equal(0), func() string { return "the key is released:\n" + w.stderr.String() })
}
