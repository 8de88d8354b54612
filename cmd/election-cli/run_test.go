//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/supervise"
)

func TestRunExitsAsItsProgramDoes(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	for script, code := range map[string]int{
		"true": 0, "exit 7": 7, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137, "kill -USR1 $$": 128 + int(unix.SIGUSR1),
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := a.prepare(strings.Map(func(r rune) rune {
				if r == ' ' || r == '$' {
					return '_'
				}
				return r
			}, script), "--", "sh", "-c", script)
			a.g.Expect(w.runs()).To(Equal(code), w.stderr.String())
		})
	}
}

func TestRunSaysWhatIsWrongWithItsCommandLineBeforeItConnects(t *testing.T) {
	g := NewWithT(t)
	text := filepath.Join(t.TempDir(), "text")
	g.Expect(os.WriteFile(text, []byte("text"), 0o600)).To(Succeed())
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{supervise.ExitNotFound, []string{"jobs", "--", "no-such-program"}, "no-such-program is not found"},
		{supervise.ExitNotFound, []string{"jobs", "--", "/no/such\x1bprogram"}, `/no/such\x1bprogram is not found`},
		{supervise.ExitNotExecutable, []string{"jobs", "--", text}, "cannot be executed: permission denied"},
		{supervise.ExitNotExecutable, []string{"jobs", "--", "/"}, "cannot be executed"},
		{supervise.ExitOwnError, []string{"jobs", "true"}, "put -- before the program"},
		{supervise.ExitOwnError, []string{"jobs", "--"}, "program"},
		{supervise.ExitOwnError, []string{"--", "true"}, "program"},
		{supervise.ExitOwnError, []string{"a b", "--", "true"}, `"a b"`},
		{supervise.ExitOwnError, []string{"jobs", "--bogus", "--", "true"}, "--bogus"},
		{supervise.ExitOwnError, []string{"jobs", "--no-wait", "--max-wait", "1s", "--", "true"}, "--max-wait"},
		{supervise.ExitOwnError, []string{"jobs", "-E", "3", "--", "true"}, "--no-wait"},
		{supervise.ExitOwnError, []string{"jobs", "--no-wait", "-E", "300", "--", "true"}, "300"},
		{supervise.ExitOwnError, []string{"jobs", "--won", "HUP", "--", "true"}, "--on-lost=signal"},
		{supervise.ExitOwnError, []string{"jobs", "--on-lost", "signal", "--won", "KILL", "--", "true"}, `--won "KILL"`},
		{supervise.ExitOwnError, []string{"jobs", "--on-lost", "signal", "--lost", "FOO", "--", "true"}, `--lost "FOO"`},
		{supervise.ExitOwnError, []string{"jobs", "--on-lost", "signal", "--no-wait", "--", "true"}, "--no-wait"},
		{supervise.ExitOwnError, []string{"jobs", "--on-exit", "keep", "--", "true"}, "--restart"},
		{supervise.ExitOwnError, []string{"jobs", "--grace=-1s", "--", "true"}, "--grace -1s"},
		{supervise.ExitOwnError, []string{"jobs", "--quiet", "-v", "--", "true"}, "--quiet"},
	} {
		code, stdout, stderr := try(append([]string{"run", "-s", "nats://127.0.0.1:1"}, c.args...)...)
		g.Expect(code).To(Equal(c.code), "%q: %s", c.args, stderr)
		g.Expect(stdout).To(BeEmpty())
		g.Expect(stderr).To(ContainSubstring(c.says), "%q", c.args)
	}
}

func TestAProgramThatIsNotThereWritesNothingToTheBucket(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	a.g.Expect(a.prepare("jobs", "--", "no-such-program").runs()).To(Equal(supervise.ExitNotFound))
	_, err := a.bucket.Get(t.Context(), "jobs")
	a.g.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
}

func TestAProgramThatGoesMissingBeforeItIsStartedIsSaidToBe(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	for content, code := range map[string]int{"#!/no/such/interpreter\n": supervise.ExitNotFound, "\x00no program\n": supervise.ExitNotExecutable} {
		a.g.Expect(os.WriteFile(a.file("program"), []byte(content), 0o700)).To(Succeed())
		w := a.prepare("jobs", "--", "./program")
		a.g.Expect(w.runs()).To(Equal(code), w.stderr.String())
		a.g.Expect(w.stderr.String()).To(ContainSubstring("program ./program"))
	}
}

func TestRunGivesUpWhileAnotherLeads(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	leader := a.start("echo >ready; sleep 1000", "--name", "web-1")
	a.await("ready", "\n")
	started := time.Now()
	w := a.prepare("--no-wait", "jobs", "--", "true")
	a.g.Expect(w.runs()).To(Equal(cli.ExitNegative))
	a.g.Expect(w.stderr.String()).To(ContainSubstring("web-1 leads jobs"))
	a.g.Expect(a.prepare("--no-wait", "-E", "75", "jobs", "--", "true").runs()).To(Equal(75))
	a.g.Expect(a.prepare("--no-wait", "--conflict-exit-code=0", "jobs", "--", "false").runs()).To(Equal(0))
	w = a.prepare("--max-wait", "300ms", "jobs", "--", "true")
	a.g.Expect(w.runs()).To(Equal(supervise.ExitTimedOut))
	a.g.Expect(w.stderr.String()).To(ContainSubstring("--max-wait"))
	a.g.Expect(time.Since(started)).To(BeNumerically("<", clitest.Patience))
	leader.sends(unix.SIGTERM)
	a.g.Expect(leader.code()).To(Equal(143))
	w = a.prepare("--no-wait", "jobs", "--", "sh", "-c", "exit 9")
	a.g.Expect(w.runs()).To(Equal(9), "a key that was released is free: %s", w.stderr)
}

func TestRunThatDoesNotWaitNeedsAServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	cmd, _, stderr := command(t, "run", "-s", "nats://127.0.0.1:1", "--no-wait", "jobs", "--", "true")
	g.Expect(cmd.Run()).NotTo(Succeed())
	g.Expect(cmd.ProcessState.ExitCode()).To(Equal(supervise.ExitOwnError))
	g.Expect(stderr.String()).To(ContainSubstring("nats://127.0.0.1:1 cannot be reached"))
}

func TestRunThatDoesNotWaitEndsWhenItLeadsNoLonger(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start("echo >ready; exec sleep 1000", "--no-wait")
	a.await("ready", "\n")
	a.g.Expect(a.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	a.g.Expect(w.code()).To(Equal(cli.ExitNegative), w.stderr.String())
}

func TestMaxWaitCountsWhileTheServerCannotBeReached(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	cmd, _, stderr := command(t, "run", "-s", "nats://127.0.0.1:1", "--max-wait", "200ms", "jobs", "--", "true")
	g.Expect(cmd.Run()).NotTo(Succeed())
	g.Expect(cmd.ProcessState.ExitCode()).To(Equal(supervise.ExitTimedOut), stderr.String())
}

func TestRunThatIsInterruptedWhileItWaitsSaysBySignal(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	for s, code := range map[syscall.Signal]int{unix.SIGINT: 130, unix.SIGTERM: 143, unix.SIGHUP: 129} {
		w := a.prepareOn("nats://127.0.0.1:1", "jobs", "--", "true")
		lines, err := progressOf(&w.cmd.Stderr, w.cmd.StderrPipe)
		a.g.Expect(err).NotTo(HaveOccurred())
		a.g.Expect(w.cmd.Start()).To(Succeed())
		a.g.Eventually(lines).WithTimeout(clitest.Patience).Should(Receive(ContainSubstring("cannot be reached yet")))
		w.sends(s)
		a.g.Expect(w.code()).To(Equal(code))
	}
}

func TestAProgramFindsTheElectionInItsEnvironmentAndItsArgumentsAsTheyWere(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("jobs", "--name", "web-1", "--", "sh", "-c", `env | grep ^ELECTION_ | sort; printf '<%s>' "$0" "$@"`,
		"run", "--help", "-x", "@file", "--", "-s", "", "--name", "a b", "--", "*")
	w.cmd.Env = append(os.Environ(), "ELECTION_TOKEN=stale")
	a.g.Expect(w.runs()).To(Equal(0), w.stderr.String())
	a.g.Expect(w.stdout.String()).To(MatchRegexp(`^ELECTION_BUCKET=LEADER_ELECTION
ELECTION_KEY=jobs
ELECTION_NAME=web-1
ELECTION_TERM=\d+
ELECTION_TOKEN=[0-9a-f]{16}-[0-9a-f]{16}
<run><--help><-x><@file><--><-s><><--name><a b><--><\*>$`))
	number := strings.Split(strings.Split(w.stdout.String(), "ELECTION_TERM=")[1], "\n")[0]
	term, err := strconv.ParseUint(number, 10, 64)
	a.g.Expect(err).NotTo(HaveOccurred())
	a.g.Expect(w.stdout.String()).To(ContainSubstring(fmt.Sprintf("-%016x\n", term)))
}

func TestShortFlagsBeforeTheProgramDoNotReachIntoIt(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("-vE7", "--no-wait", "jobs", "--", "echo", "--bogus", "-h")
	a.g.Expect(w.runs()).To(Equal(0), w.stderr.String())
	a.g.Expect(w.stdout.String()).To(Equal("--bogus -h\n"))
}

func TestAProgramReadsWhatRunIsGivenAndNothingItWritesIsLost(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("jobs", "--", "cat")
	text := strings.Repeat("all that is read is written\n", 10000)
	w.cmd.Stdin = strings.NewReader(text)
	a.g.Expect(w.runs()).To(Equal(0))
	a.g.Expect(w.stdout.String() == text).To(BeTrue(), "%d bytes of %d", w.stdout.Len(), len(text))
	w = a.prepare("jobs", "--", "sh", "-c", "yes | head -c 20000000; echo done >&2")
	a.g.Expect(w.runs()).To(Equal(0), "yes ends by a broken pipe, as it should")
	a.g.Expect(w.stdout.Len()).To(Equal(20000000))
	a.g.Expect(w.stderr.String()).To(ContainSubstring("done\n"))
}

func TestAProgramRunsInAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.start("echo $$ >pid; exec sleep 1000")
	pid := a.pid("pid")
	a.g.Expect(unix.Getpgid(pid)).To(Equal(pid))
	w.sends(unix.SIGTERM)
	a.g.Expect(w.code()).To(Equal(143))
}

func TestAReaderOfTheLogThatGoesAwayDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	a := unhurried(t)
	w := a.prepare("jobs", "--", "sh", "-c", "sleep 0.2; exit 5")
	r, pipe, err := os.Pipe()
	a.g.Expect(err).NotTo(HaveOccurred())
	w.cmd.Stderr = pipe
	a.g.Expect(r.Close()).To(Succeed())
	a.g.Expect(w.runs()).To(Equal(5))
	_ = pipe.Close()
}

func TestAGraceThatDoesNotFitIsRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 5*time.Second)
	w := a.prepare("--grace", "3s", "jobs", "--", "true")
	a.g.Expect(w.runs()).To(Equal(supervise.ExitOwnError))
	a.g.Expect(w.stderr.String()).To(And(ContainSubstring("--grace 3s"), ContainSubstring("TTL of 5s"), ContainSubstring("--grace of at most")))
	_, err := a.bucket.Get(t.Context(), "jobs")
	a.g.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
}
