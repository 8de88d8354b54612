//go:build linux || darwin

package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/proctest"
	"github.com/natscampaign/election/internal/witness"
)

// heartbeats has a script start a child, in the group of the script, that ignores signals and writes the time again and again.
const heartbeats = `(trap '' TERM HUP INT; while :; do date +%s%N >>heartbeats; done) & echo $! >child; `

// newWitnessFixture returns a fixture whose leases are so long that only a witness can explain a takeover.
func newWitnessFixture(t *testing.T) *runFixture {
	t.Helper()
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip("this system has no ps")
	}
	return newRunFixture(t, clitest.LongTTL)
}

// witnessOf returns the process number of the witness of a call of run; 0 if there is none. It has the arguments of its parent.
func (w *invocation) witnessOf() int {
	for _, p := range parseProcesses(listProcesses()) {
		if p.parent == w.cmd.Process.Pid && strings.HasSuffix(strings.TrimSpace(p.args), strings.Join(w.cmd.Args[1:], " ")) {
			return p.pid
		}
	}
	return 0
}

// guards returns the process numbers of the guardian of a call of run and of the deputy.
func (w *invocation) guards() (pids []int) {
	w.T.Helper()
	w.Eventually(func() []int { // the guardian starts its deputy while the program starts
		pids = nil
		for _, p := range descendants(w.cmd.Process.Pid) {
			if strings.Contains(p.args, supervise.GuardianCommand) || strings.Contains(p.args, "deputy of-run") {
				pids = append(pids, p.pid)
			}
		}
		return pids
	}).Should(HaveLen(2))
	return pids
}

// heartbeats returns the times that the child has written, in nanoseconds.
func (f *runFixture) heartbeats() (all []int) {
	lines := strings.Split(f.content("heartbeats")(), "\n")
	for _, line := range lines[:len(lines)-1] { // the last one may be half a line
		at, err := strconv.Atoi(line)
		f.Expect(err).NotTo(HaveOccurred())
		all = append(all, at)
	}
	return all
}

// isReleased reports whether the key is released: by its record, or by a deletion.
func (f *fixture) isReleased() bool {
	f.T.Helper()
	entry, err := f.Bucket.Get(f.T.Context(), "jobs")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return true
	}
	f.Expect(err).NotTo(HaveOccurred())
	r := record.Parse(entry.Value(), entry.Revision())
	return !r.Released.IsZero()
}

// expectTakeover expects that the program of another candidate starts, and that it does so after the last heartbeat of the child and a settle time.
func (f *runFixture) expectTakeover() {
	f.T.Helper()
	other := f.start(`date +%s%N >other; exec sleep 1000`)
	started := f.pidIn("other")
	f.Expect(proctest.IsRunning(f.pidIn("child"))).To(BeFalse(), "the group is dead when another host leads")
	beats := f.heartbeats()
	f.Expect(started-beats[len(beats)-1]).To(BeNumerically(">=", witness.DefaultSettleTime.Nanoseconds()), "its effects have settled")
	other.terminate(143)
}

func TestRunThatIsKilledIsReplacedThoughItsLeaseGoesOn(t *testing.T) {
	t.Parallel()
	for name, withGuardian := range map[string]bool{"run": false, "run and its guardian": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWitnessFixture(t)
			w := f.start(heartbeats + `wait`)
			f.awaitText("heartbeats", "\n")
			f.pidIn("child")
			witnessPID, guardian := w.witnessOf(), f.guardianOf(w)
			f.Expect(witnessPID).NotTo(BeZero())
			if withGuardian {
				f.Expect(unix.Kill(guardian, unix.SIGKILL)).To(Succeed())
			}
			w.signal(unix.SIGKILL)
			f.expectTakeover()
			f.expectDead(witnessPID, clitest.Timeout)
			w.exitCode() // stderr has ended
			// On a busy host it may connect and release the key after it has let go of stderr.
			released := And(ContainSubstring("Released the key of a leader that has died  of=witness  "), ContainSubstring("Connected  of=witness  "))
			f.Expect(w.stderr.String()).To(Or(released, ContainSubstring("The key is not released yet: the witness goes on trying")))
			f.Expect(strings.Count(w.stderr.String(), "Connected  server=")).To(Equal(1), "run connected once")
		})
	}
}

// TestKeyOfAKilledRunIsNotReleasedWhileTheGroupRuns stops the guardian and the deputy, so that the group outlives run.
func TestKeyOfAKilledRunIsNotReleasedWhileTheGroupRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags  []string
		script string
	}{
		"terminate": {nil, `echo >leads; ` + heartbeats + `wait`},
		"signal":    {[]string{"--on-lost=signal"}, `trap 'echo >leads' USR1; trap : USR2; ` + heartbeats + `while :; do wait; done`},
		"restarted in the same term": {[]string{"--restart=always", "--on-exit=keep"},
			`[ -e again ] || { echo >again; exit 1; }; echo >leads; ` + heartbeats + `wait`},
		"restarted in the same term, signal": {[]string{"--on-lost=signal", "--restart=always", "--on-exit=keep"},
			`trap '[ -e again ] || { echo >again; exit 1; }; echo >leads' USR1; trap : USR2; ` +
				`if [ -e again ]; then ` + heartbeats + `fi; while :; do sleep 0.02; done`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWitnessFixture(t)
			w := f.start(c.script, c.flags...)
			f.awaitText("leads", "\n")
			f.awaitText("heartbeats", "\n")
			child, guards := f.pidIn("child"), w.guards()
			for _, pid := range guards {
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
				proctest.Stop(t, pid)
			}
			w.signal(unix.SIGKILL)
			_, err := w.cmd.Process.Wait()
			f.Expect(err).NotTo(HaveOccurred())
			dead := len(f.heartbeats())
			f.Eventually(func() int { return len(f.heartbeats()) }).Should(BeNumerically(">", dead+100))
			f.Expect(f.isReleased()).To(BeFalse())
			f.Expect(proctest.IsRunning(child)).To(BeTrue())
			for _, pid := range guards {
				_ = unix.Kill(pid, unix.SIGCONT) // the guardian may have ended its deputy already
			}
			f.expectTakeover()
		})
	}
}

func TestKeyOfAKilledRunWithoutAWitnessIsLeftToItsLease(t *testing.T) {
	t.Parallel()
	f := newWitnessFixture(t)
	w := f.start(heartbeats+`wait`, "--no-witness")
	child := f.pidIn("child")
	f.Expect(w.witnessOf()).To(BeZero())
	w.signal(unix.SIGKILL)
	f.expectDead(child, clitest.Timeout)
	w.exitCode() // nothing that run has started keeps stderr open
	f.Expect(f.isReleased()).To(BeFalse())
	f.Expect(f.prepare("--no-wait", "jobs", "--", "true").run()).To(Equal(cli.ExitNegative))
}

func TestWitnessThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	f := newWitnessFixture(t)
	w := f.start(heartbeats + `wait`)
	f.pidIn("child")
	first := w.witnessOf()
	f.Expect(first).NotTo(BeZero())
	f.Expect(unix.Kill(first, unix.SIGKILL)).To(Succeed())
	var second int
	f.Eventually(func() int { second = w.witnessOf(); return second }).ShouldNot(Or(BeZero(), Equal(first)))
	w.terminate(143)
	f.expectDead(second, clitest.Timeout)
}

func TestRunThatEndsLeavesNoWitnessBehind(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"terminate": nil, "signal": {"--on-lost=signal"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWitnessFixture(t)
			w := f.start(`trap 'exit 0' TERM; trap : USR1 USR2; echo >ready; while :; do sleep 0.02; done`, flags...)
			f.awaitText("ready", "\n")
			witnessPID := w.witnessOf()
			f.Expect(witnessPID).NotTo(BeZero())
			w.terminate(0)
			f.expectDead(witnessPID, clitest.Timeout)
			f.Expect(w.stderr.String()).NotTo(ContainSubstring("that has died"))
			f.expectReleased()
		})
	}
}

func TestNothingThatRunStartsIsTakenForAWitness(t *testing.T) {
	t.Parallel()
	f := newWitnessFixture(t)
	f.Expect(os.WriteFile(f.file("hook"), []byte("#!/bin/sh\nenv >hook.env\n"), 0o700)).To(Succeed())
	w := f.prepare("--lost-hook", f.file("hook"), "jobs", "--", "sh", "-c", "env >program.env")
	f.Expect(w.run()).To(Equal(0), w.stderr.String())
	for _, file := range []string{"program.env", "hook.env"} {
		f.Expect(f.content(file)()).To(And(ContainSubstring("ELECTION_KEY=jobs\n"), Not(ContainSubstring("ELECTION_WITNESS"))))
	}
}
