//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestRunExitsWithTheCodeOfTheProgram(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	for script, code := range map[string]int{
		"true": 0, "exit 7": 7, "exit 255": 255, "kill -TERM $$": 143, "kill -KILL $$": 137, "kill -USR1 $$": 128 + int(unix.SIGUSR1),
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := f.prepare(strings.Map(func(r rune) rune {
				if r == ' ' || r == '$' {
					return '_'
				}
				return r
			}, script), "--", "sh", "-c", script)
			f.Expect(w.run()).To(Equal(code), w.stderr.String())
		})
	}
}

func TestRunWritesNothingToTheBucketIfTheProgramIsNotFound(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	f.Expect(f.prepare("jobs", "--", "no-such-program").run()).To(Equal(supervise.ExitNotFound))
	_, err := f.Bucket.Get(t.Context(), "jobs")
	f.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
}

func TestProgramThatCannotBeExecutedWhenLeadingIsReported(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	for content, code := range map[string]int{"#!/no/such/interpreter\n": supervise.ExitNotFound, "\x00no program\n": supervise.ExitNotExecutable} {
		f.Expect(os.WriteFile(f.file("program"), []byte(content), 0o700)).To(Succeed())
		w := f.prepare("jobs", "--", "./program")
		f.Expect(w.run()).To(Equal(code), w.stderr.String())
		f.Expect(w.stderr.String()).To(ContainSubstring("program \"./program\""))
	}
}

func TestNoWaitAndMaxWaitGiveUpWhileAnotherHostLeads(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	leader := f.start("echo >ready; sleep 1000", "--name", "web-1")
	f.awaitText("ready", "\n")
	started := time.Now()
	w := f.prepare("--no-wait", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(cli.ExitNegative))
	f.Expect(w.stderr.String()).To(ContainSubstring(`"web-1" leads "jobs"`))
	f.Expect(f.prepare("--no-wait", "-E", "75", "jobs", "--", "true").run()).To(Equal(75))
	f.Expect(f.prepare("--no-wait", "--conflict-exit-code=0", "jobs", "--", "false").run()).To(Equal(0))
	w = f.prepare("--max-wait", "300ms", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(supervise.ExitTimedOut))
	f.Expect(w.stderr.String()).To(HaveSuffix("this candidate did not lead \"jobs\" within --max-wait 300ms; 'election-cli check jobs' says why\n"))
	f.Expect(time.Since(started)).To(BeNumerically("<", clitest.Timeout))
	leader.terminate(143)
	w = f.prepare("--no-wait", "jobs", "--", "sh", "-c", "exit 9")
	f.Expect(w.run()).To(Equal(9), "the key was released: %s", w.stderr)
}

// TestNoWaitGivesUpWhileThisHostIsNotToCampaign has what holds the candidate back last for ever.
func TestNoWaitGivesUpWhileThisHostIsNotToCampaign(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--no-wait", "--health-command", "false", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(cli.ExitNegative), w.stderr.String())
	f.Expect(w.stderr.String()).To(ContainSubstring("this host is not healthy: --health-command: false: exit status 1"))
	f.ok("pause", "jobs", "--force")
	w = f.prepare("--no-wait", "-E", "75", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(75), w.stderr.String())
	f.Expect(w.stderr.String()).To(ContainSubstring(`the election "jobs" is paused; 'election-cli resume jobs' ends that`))
}

func TestKeyIsHeldAsLongAsHoldAtLeastSaysThoughTheProgramHasExited(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	started := time.Now()
	job := f.start("echo >ready; exit 9", "--no-wait", "--hold-at-least", "15s", "--name", "web-1")
	f.awaitText("ready", "\n")
	late := f.prepare("--no-wait", "jobs", "--", "touch", f.file("again"))
	f.Expect(late.run()).To(Equal(cli.ExitNegative), "the job has exited, and its key is held")
	f.Expect(late.stderr.String()).To(ContainSubstring(`"web-1" leads "jobs"`))
	f.Expect(f.file("again")).NotTo(BeAnExistingFile())
	f.Expect(job.exitCode()).To(Equal(9), "the exit code of the program")
	f.Expect(time.Since(started)).To(BeNumerically(">=", 15*time.Second))
	f.Expect(job.stderr.String()).To(ContainSubstring("Program has exited, the key is held on"))
	f.Expect(f.prepare("--no-wait", "jobs", "--", "true").run()).To(Equal(0), "the key was released")
}

func TestSignalEndsTheHoldOfAKeyWithTheExitCodeOfTheProgram(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	job := f.prepare("--no-wait", "--hold-at-least", "1h", "jobs", "--", "sh", "-c", "exit 9")
	followLog(f, job.cmd).says("the key is held on")
	job.terminate(9)
	f.Expect(f.prepare("--no-wait", "jobs", "--", "true").run()).To(Equal(0), "the key was released")
}

func TestRunThatIsNotToWaitForLongFailsWithoutAServer(t *testing.T) {
	t.Parallel()
	const start = "cannot connect to nats://127.0.0.1:1: connection refused: start the server there, or correct host and port in --server, NATS_URL or --context; or leave out --no-wait to wait for the server"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--no-wait"}, supervise.ExitOwnError, start},
		{[]string{"--max-wait", "200ms"}, supervise.ExitTimedOut, ""},
	} {
		g := NewWithT(t)
		cmd, _, stderr := command(t, slices.Concat([]string{"run", "-s", "nats://127.0.0.1:1"}, c.args, []string{"jobs", "--", "true"})...)
		g.Expect(cmd.Run()).NotTo(Succeed())
		g.Expect(cmd.ProcessState.ExitCode()).To(Equal(c.code), stderr.String())
		g.Expect(stderr.String()).To(ContainSubstring(c.says))
	}
}

func TestNoWaitEndsRunWhenItLosesLeadership(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start("echo >ready; exec sleep 1000", "--no-wait")
	f.awaitText("ready", "\n")
	f.Expect(f.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
	f.Expect(w.exitCode()).To(Equal(cli.ExitNegative), w.stderr.String())
}

func TestRunThatASignalEndsWhileItWaitsExitsWith128PlusTheSignal(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	for s, code := range map[syscall.Signal]int{unix.SIGINT: 130, unix.SIGTERM: 143, unix.SIGHUP: 129} {
		w := f.prepareWithServer("nats://127.0.0.1:1", "jobs", "--", "true")
		followLog(f, w.cmd).says("cannot be reached yet")
		w.signal(s)
		f.Expect(w.exitCode()).To(Equal(code))
	}
}

func TestProgramGetsTheElectionInItsEnvironmentAndUnchangedArguments(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--name", "web-1", "--", "sh", "-c", `env | grep ^ELECTION_ | sort; printf '<%s>' "$0" "$@"`,
		"run", "--help", "-x", "@file", "--", "-s", "", "--name", "a b", "--", "*")
	w.cmd.Env = append(os.Environ(), "ELECTION_TOKEN=stale")
	f.Expect(w.run()).To(Equal(0), w.stderr.String())
	f.Expect(w.stdout.String()).To(MatchRegexp(`^ELECTION_BUCKET=LEADER_ELECTION
ELECTION_KEY=jobs
ELECTION_NAME=web-1
ELECTION_TERM=\d+
ELECTION_TOKEN=[0-9a-f]{16}-[0-9a-f]{16}
<run><--help><-x><@file><--><-s><><--name><a b><--><\*>$`))
	number := strings.Split(strings.Split(w.stdout.String(), "ELECTION_TERM=")[1], "\n")[0]
	term, err := strconv.ParseUint(number, 10, 64)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(w.stdout.String()).To(ContainSubstring(fmt.Sprintf("-%016x\n", term)))
}

func TestProgramKeepsItsOwnShortFlags(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("-vE7", "--no-wait", "jobs", "--", "echo", "--bogus", "-h")
	f.Expect(w.run()).To(Equal(0), w.stderr.String())
	f.Expect(w.stdout.String()).To(Equal("--bogus -h\n"))
}

func TestProgramInheritsStdinAndLosesNoOutput(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "cat")
	text := strings.Repeat("all that is read is written\n", 10000)
	w.cmd.Stdin = strings.NewReader(text)
	f.Expect(w.run()).To(Equal(0))
	f.Expect(w.stdout.String() == text).To(BeTrue(), "%d bytes of %d", w.stdout.Len(), len(text))
	w = f.prepare("jobs", "--", "sh", "-c", "yes | head -c 20000000; echo done >&2")
	f.Expect(w.run()).To(Equal(0), "a broken pipe ends yes, and sh goes on")
	f.Expect(w.stdout.Len()).To(Equal(20000000))
	f.Expect(w.stderr.String()).To(ContainSubstring("done\n"))
}

func TestProgramRunsInAProcessGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start("echo $$ >pid; exec sleep 1000")
	pid := f.pidIn("pid")
	f.Expect(unix.Getpgid(pid)).To(Equal(pid))
	w.terminate(143)
}

func TestProgramGoesOnWhenNothingReadsTheLog(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("jobs", "--", "sh", "-c", "sleep 0.2; exit 5")
	r, pipe, err := os.Pipe()
	f.Expect(err).NotTo(HaveOccurred())
	w.cmd.Stderr = pipe
	f.Expect(r.Close()).To(Succeed())
	f.Expect(w.run()).To(Equal(5))
	_ = pipe.Close()
}

func TestGraceThatDoesNotFitIsRefusedWithAFix(t *testing.T) {
	t.Parallel()
	f := newRunFixture(t, 5*time.Second)
	w := f.prepare("--grace", "3s", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(supervise.ExitOwnError))
	f.Expect(w.stderr.String()).To(And(ContainSubstring("--grace 3s"), ContainSubstring("TTL of 5s"), ContainSubstring("--grace of at most")))
	_, err := f.Bucket.Get(t.Context(), "jobs")
	f.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
}

func TestProgramDoesNotInheritThePasswordsOfRun(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	secret := []string{"NATS_URL=nats://me:secret@127.0.0.1:4222", "NATS_PASSWORD=secret", "NATS_TOKEN=secret"}
	for _, c := range []struct {
		flags  []string
		passed int
	}{{nil, 0}, {[]string{"--keep-env"}, 3}} {
		w := f.prepare(append(c.flags, "--user", "me", "jobs", "--", "env")...)
		w.cmd.Env = append(os.Environ(), secret...)
		f.Expect(w.run()).To(Equal(0), w.stderr.String())
		f.Expect(strings.Count(w.stdout.String(), "secret")).To(Equal(c.passed), "%v", c.flags)
	}
}

func TestProgramInheritsNoUserThatIsAToken(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	for _, c := range []struct {
		flags, env []string
		passed     bool
	}{
		{nil, []string{"NATS_USER=secret"}, false},
		{[]string{"--keep-env"}, []string{"NATS_USER=secret"}, true},
		{nil, []string{"NATS_USER=secret", "NATS_PASSWORD=other"}, true}, // then it is a name
	} {
		w := f.prepare(append(c.flags, "jobs", "--", "env")...)
		w.cmd.Env = append(os.Environ(), c.env...)
		f.Expect(w.run()).To(Equal(0), w.stderr.String())
		f.Expect(strings.Contains(w.stdout.String(), "NATS_USER=secret")).To(Equal(c.passed), "%v %v", c.flags, c.env)
	}
}
