//go:build linux || darwin

package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/proctest"
)

func TestRunExitsWithTheCodeOfAProgramThatTermEnds(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`trap 'echo TERM >>signals; exit 0' TERM; echo >ready; while :; do sleep 0.02; done`, "--restart=always")
	f.awaitText("ready", "\n")
	w.terminate(0)
	f.Expect(f.content("signals")()).To(Equal("TERM\n"))
	f.expectReleased()
}

func TestProgramThatIgnoresTermIsKilledBeforeTheKeyIsReleased(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`trap '' TERM; echo $$ >pid; while :; do date +%s%N >>ticks; done`, "--stop-timeout", "150ms")
	pid := f.pidIn("pid")
	f.start(`kill -0 `+fmt.Sprint(pid)+` && echo >still; echo >other; sleep 1000`, "--max-wait", "20s")
	signalled := time.Now()
	w.terminate(137)
	f.Expect(time.Since(signalled)).To(BeNumerically(">=", 150*time.Millisecond), "the program had its time")
	f.Expect(w.stderr.String()).To(MatchRegexp(`WARN +Killing the process group .*because="the stop timeout is over"`))
	f.awaitText("other", "\n")
	f.Expect(f.content("still")()).To(BeEmpty(), "the program is dead when another host leads")
}

func TestAnOperatorWhoWaitsForTheProgramToEndIsToldSo(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	var code int
	var stdout, stderr string
	for again := true; again; again = strings.Contains(stderr, "does not answer") { // within three seconds, on a busy host
		f := newLongLeaseFixture(t)
		f.start(`trap '' TERM; echo >ready; while :; do sleep 0.02; done`, "--stop-timeout", "6s", "--name", "web-1")
		f.awaitText("ready", "\n")
		code, stdout, stderr = runInProcess("resign", "jobs", "--force", "-s", f.url)
	}
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(HavePrefix(`"web-1" has resigned`))
	g.Expect(stderr).To(HavePrefix("waiting for \"web-1\": a leader ends its work first\n"))
}

func TestLogSaysWhenAProgramIsKilledInAnOrderlyStop(t *testing.T) {
	t.Parallel()
	const stopTimeout = 6 * time.Second                                    // enough for the shell to run its trap
	late := regexp.MustCompile(`does not answer|have not returned within`) // what an operator is told on a busy host
	for text, stop := range map[string]func(f *runFixture, w *invocation) (answer string){
		"Terminating the program, and this command with it": func(_ *runFixture, w *invocation) (answer string) {
			w.signal(unix.SIGTERM)
			return "0 "
		},
		"Terminating the program": func(f *runFixture, w *invocation) (answer string) {
			code, _, stderr := runInProcess("resign", "jobs", "--force", "-s", f.url)
			f.awaitText("term", "\n")
			w.signal(unix.SIGTERM)
			return fmt.Sprint(code, " ", stderr)
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var f *runFixture
			var w *invocation
			var before time.Time
			var answer string
			for tries := 0; tries < 3 && (tries == 0 || late.MatchString(answer)); tries++ {
				f = newLongLeaseFixture(t)
				w = f.start(`trap 'echo >term' TERM; echo >ready; while :; do sleep 0.02; done`, "--stop-timeout", stopTimeout.String())
				f.awaitText("ready", "\n")
				before = time.Now()
				answer = stop(f, w)
			}
			f.Expect(answer).To(HavePrefix("0 "))
			f.Expect(w.exitCode()).To(BeElementOf(137, 143), w.stderr.String())
			f.Expect(f.file("term")).To(BeAnExistingFile())
			found := regexp.MustCompile(`INFO +` + text + `  signal=SIGTERM  kill-at=(\S+)\n`).FindStringSubmatch(w.stderr.String())
			f.Expect(found).To(HaveLen(2), w.stderr.String())
			at, err := time.Parse(time.RFC3339, found[1])
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(at).To(BeTemporally(">=", before.Add(stopTimeout).Truncate(time.Millisecond)))
			f.Expect(at).To(BeTemporally("<", time.Now()), "it was killed")
		})
	}
}

// TestProgramThatTakesLongerThanALeaseToStopExitsOnItsOwn stops a program that takes 11 s, which is longer than a lease of 9 s.
func TestProgramThatTakesLongerThanALeaseToStopExitsOnItsOwn(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 10*time.Second)
	one := f.start(`trap 'sleep 11; date +%s%N >stopped; exit 7' TERM; echo >ready; while :; do sleep 0.02; done`, "--interval", "1s", "--stop-timeout", "1m")
	f.awaitText("ready", "\n")
	two := f.start(`date +%s%N >started; sleep 1000`, "-v")
	one.terminate(7)
	f.awaitText("started", "\n")
	stopped, started := f.pidIn("stopped"), f.pidIn("started")
	f.Expect(started).To(BeNumerically(">", stopped), "never two programs at once")
	t.Logf("from the end of one program to the start of the next: %v", time.Duration(started-stopped))
	f.Expect(f.Bucket.Get(t.Context(), "jobs")).To(HaveField("Revision()", BeNumerically(">", 3)), "the lease was renewed meanwhile")
	two.terminate(143)
}

// TestOrderlyStopEndsWithTheLeaseIfTheLinkIsCut cuts the link of a host whose program takes long to stop.
func TestOrderlyStopEndsWithTheLeaseIfTheLinkIsCut(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 10*time.Second)
	link, url := linkTo(f.T, f.url)
	one := f.prepareWithServer(url, "--stop-timeout", "1m", "jobs", "--", "bash", "-c",
		`trap 'sleep 100' TERM; echo $$ >pid; while :; do date +%s%N >>alive; sleep 0.01; done`)
	f.Expect(one.cmd.Start()).To(Succeed())
	pid := f.pidIn("pid")
	f.start(`kill -0 ` + fmt.Sprint(pid) + ` && echo >still; echo >other; sleep 1000`)
	one.signal(unix.SIGTERM)
	link.Cut()
	f.awaitText("other", "\n")
	f.Expect(f.content("still")()).To(BeEmpty(), "the program is dead when another host leads")
	f.Expect(one.exitCode()).To(Equal(137), one.stderr.String())
	f.Expect(one.stderr.String()).To(ContainSubstring(`because="the lease is about to end"`))
}

// TestProgramIsKilledAtOnceWhenLeadershipIsLost has the log name the cause, and not one that somebody would search for in vain.
func TestProgramIsKilledAtOnceWhenLeadershipIsLost(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	for reason, lose := range map[string]func(f *runFixture) error{
		"deleted": func(f *runFixture) error { return f.Bucket.Delete(f.T.Context(), "jobs") },
		"overwritten": func(f *runFixture) error {
			_, err := f.Bucket.Put(f.T.Context(), "jobs", []byte("stranger"))
			return err
		},
		"bucket-replaced|deleted": func(f *runFixture) error {
			f.RemoveBucket()
			f.makeBucket(10 * time.Second)
			return nil
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			w := f.start(`trap '' TERM; echo $$ >pid; while :; do sleep 0.02; done`, "--no-wait")
			pid := f.pidIn("pid")
			f.Expect(lose(f)).To(Succeed())
			f.Expect(w.exitCode()).To(Equal(cli.ExitNegative), w.stderr.String())
			f.Expect(proctest.IsRunning(pid)).To(BeFalse())
			f.Expect(w.stderr.String()).To(And(ContainSubstring("Program ended"),
				MatchRegexp(`because="leadership was lost: (%s)"`, reason), Not(ContainSubstring("This process was stopped"))))
		})
	}
}

func TestProgramThatIgnoresIntGetsTerm(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`trap '' INT; trap 'exit 4' TERM; echo >ready; while :; do sleep 0.02; done`)
	f.awaitText("ready", "\n")
	w.signal(unix.SIGINT)
	f.Expect(w.exitCode()).To(Equal(4))
}

func TestChildrenAreKilledWhenTheProgramExits(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`(trap '' TERM HUP; while :; do sleep 0.05; done) & echo $! >child; exit 6`)
	f.Expect(w.exitCode()).To(Equal(6))
	f.Expect(proctest.IsRunning(f.pidIn("child"))).To(BeFalse())
}

func TestChildrenHaveTheGraceToo(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`trap 'exit 5' TERM
		(trap 'sleep 0.1; echo >cleaned-up; exit' TERM; echo >ready; while :; do sleep 0.02; done) & while :; do sleep 0.02; done`)
	f.awaitText("ready", "\n")
	w.terminate(5)
	f.Expect(f.content("cleaned-up")()).To(Equal("\n"))
}

func TestSignalsAreForwardedToTheProgram(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(`for s in HUP USR1 USR2; do trap "echo $s >>signals" $s; done
		trap 'echo INT >>signals; exit 3' INT
		echo >ready; while :; do sleep 0.02; done`)
	f.awaitText("ready", "\n")
	for name, s := range map[string]syscall.Signal{"HUP": unix.SIGHUP, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2} {
		w.signal(s)
		f.awaitText("signals", name+"\n")
	}
	w.signal(unix.SIGINT)
	f.Expect(w.exitCode()).To(Equal(3))
	f.Expect(f.content("signals")()).To(HaveSuffix("INT\n"))
	f.Expect(strings.Fields(f.content("signals")())).To(HaveLen(4), "each signal arrives once")
}

func TestAnotherHostLeadsAtOnceWhenTheProgramIsKilled(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	var delays []time.Duration
	for range 5 {
		f := f.again()
		one := f.start(`echo $$ >one; exec sleep 1000`)
		pid := f.pidIn("one")
		two := f.prepare("jobs", "--", "sh", "-c", `echo $$ >two; exec sleep 1000`)
		followLog(f, two.cmd).says("Leader seen")
		killed := time.Now()
		f.Expect(unix.Kill(pid, unix.SIGKILL)).To(Succeed())
		f.Eventually(f.content("two")).WithPolling(time.Millisecond).ShouldNot(BeEmpty())
		delays = append(delays, time.Since(killed))
		f.Expect(one.exitCode()).To(Equal(137))
		two.terminate(143)
	}
	t.Logf("from KILL of the program to the start of the next program: %v", delays)
	for _, d := range delays {
		f.Expect(d).To(BeNumerically("<", 8*time.Second), "sooner than any lease ends")
	}
}
