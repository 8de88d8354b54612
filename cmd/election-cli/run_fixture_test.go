//go:build linux || darwin

package main

import (
	"bytes"
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

	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/proctest"
)

// runFixture is a server with a bucket, and a folder in which the programs of a test write files.
type runFixture struct {
	*fixture
	folder string
	flags  []string
}

// newRunFixture returns a fixture whose bucket has the given TTL. Every call of run gets the given flags.
func newRunFixture(t *testing.T, ttl time.Duration, flags ...string) *runFixture {
	t.Helper()
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // if nohup runs the tests, the commands below must not ignore HUP
	return &runFixture{fixture: newFixture(t, ttl), folder: t.TempDir(), flags: flags}
}

// again returns the fixture with a new folder.
func (f *runFixture) again() *runFixture {
	return &runFixture{fixture: f.fixture, folder: f.T.TempDir(), flags: f.flags}
}

// newLongLeaseFixture returns a fixture for tests that are not about the end of a lease. Its leases are so long that no leader loses
// one on a busy host, and its interval is so short that a winner leads one second after an expiry.
func newLongLeaseFixture(t *testing.T) *runFixture {
	t.Helper()
	return newRunFixture(t, 15*time.Second, "--interval", "1s")
}

// file returns a path for the programs to write to.
func (f *runFixture) file(name string) string { return filepath.Join(f.folder, name) }

// content returns a function that reads a file, for Eventually.
func (f *runFixture) content(name string) func() string {
	return func() string {
		text, _ := os.ReadFile(f.file(name))
		return string(text)
	}
}

// invocation is one call of election-cli run.
type invocation struct {
	*runFixture
	cmd            *exec.Cmd
	stdout, stderr *bytes.Buffer
}

// prepare returns a call of run with the given flags and program. It does not start the call.
func (f *runFixture) prepare(args ...string) *invocation {
	return f.prepareWithServer(f.url, args...)
}

// prepareWithServer is prepare with the server at the given URL.
func (f *runFixture) prepareWithServer(url string, args ...string) *invocation {
	cmd, stdout, stderr := command(f.T, slices.Concat([]string{"run", "-s", url, "--stand-down", "0s"}, f.flags, args)...)
	cmd.Dir = f.folder
	cmd.WaitDelay = clitest.Timeout // if a program outlives run, the test fails and does not hang
	return &invocation{runFixture: f, cmd: cmd, stdout: stdout, stderr: stderr}
}

// start calls run with a shell script as the program.
func (f *runFixture) start(script string, flags ...string) *invocation {
	f.T.Helper()
	w := f.prepare(append(flags, "jobs", "--", "bash", "-c", script)...)
	f.Expect(w.cmd.Start()).To(Succeed())
	return w
}

// exitCode waits until the call ends and returns its exit code.
func (w *invocation) exitCode() int {
	w.T.Helper()
	if err := w.cmd.Wait(); w.cmd.ProcessState == nil {
		w.T.Fatalf("no state of the program: %v", err)
	}
	if w.cmd.ProcessState.ExitCode() < 0 {
		w.T.Log(w.cmd.ProcessState.String())
	}
	return w.cmd.ProcessState.ExitCode()
}

// run makes the call and returns its exit code.
func (w *invocation) run() int {
	w.T.Helper()
	w.Expect(w.cmd.Start()).To(Succeed())
	return w.exitCode()
}

// terminate terminates the call, and expects the exit code.
func (w *invocation) terminate(code int) {
	w.T.Helper()
	w.signal(unix.SIGTERM)
	w.Expect(w.exitCode()).To(Equal(code), w.stderr.String())
}

func (w *invocation) signal(s syscall.Signal) {
	w.T.Helper()
	w.Expect(w.cmd.Process.Signal(s)).To(Succeed())
}

// awaitText waits until a file contains a text.
func (f *runFixture) awaitText(name, text string) {
	f.T.Helper()
	f.Eventually(f.content(name)).WithPolling(5 * time.Millisecond).Should(ContainSubstring(text))
}

// pidIn waits until a program has written a process number to a file, and returns the number.
func (f *runFixture) pidIn(name string) int {
	f.T.Helper()
	f.awaitText(name, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(f.content(name)()))
	f.Expect(err).NotTo(HaveOccurred())
	return pid
}

func (f *runFixture) expectDead(pid int, within time.Duration) {
	f.T.Helper()
	f.Eventually(func() bool { return proctest.IsRunning(pid) }).WithTimeout(within).WithPolling(time.Millisecond).Should(BeFalse(), "process %d", pid)
}

// expectReleased expects that the key is released, so that the next candidate leads at once.
func (f *runFixture) expectReleased() {
	f.T.Helper()
	w := f.prepare("-v", "--no-wait", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(0), func() string { return "the key is not released:\n" + w.stderr.String() })
}
