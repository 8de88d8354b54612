//go:build linux || darwin

package main

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/supervise"
)

// hook writes a lost hook that notes the reason, and returns its path.
func (f *runFixture) hook() string {
	f.T.Helper()
	path := f.file("hook")
	f.Expect(os.WriteFile(path, []byte("#!/bin/sh\necho $ELECTION_KEY $ELECTION_ENDED_REASON ${ELECTION_TOKEN:+token} >>reasons\n"), 0o700)).To(Succeed())
	return path
}

func TestTheLostHookLearnsWhyLeadershipEnded(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{supervise.OnLostTerminate, supervise.OnLostSignal} {
		for _, reason := range []election.Reason{election.ReasonDeleted, election.ReasonStopped} {
			t.Run(mode+" "+string(reason), func(t *testing.T) {
				t.Parallel()
				f := newLongLeaseFixture(t)
				w := f.start(`trap 'echo led >>led' USR1; trap : USR2; trap 'exit 0' TERM; [ -z "$ELECTION_TERM" ] || echo led >>led; while :; do sleep 0.02; done`,
					"--lost-hook", f.hook(), "--on-lost="+mode)
				f.awaitText("led", "led\n")
				if reason == election.ReasonDeleted {
					f.Expect(f.Bucket.Delete(t.Context(), "jobs")).To(Succeed())
					f.awaitText("reasons", "\n")
				}
				w.signal(unix.SIGTERM)
				w.exitCode()
				f.Expect(f.content("reasons")()).To(Equal("jobs "+string(reason)+" token\n"), w.stderr.String())
			})
		}
	}
}

func TestTheLostHookLearnsThatTheLeaseWasNotRenewed(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	for _, mode := range []string{supervise.OnLostTerminate, supervise.OnLostSignal} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newRunFixture(t, 2*time.Second)
			link, url := linkTo(f.T, f.url)
			w := f.prepareWithServer(url, "--lost-hook", f.hook(), "--on-lost="+mode, "jobs", "--", "sh", "-c",
				`trap 'echo led >>led' USR1; trap : USR2; trap 'exit 0' TERM; [ -z "$ELECTION_TERM" ] || echo led >>led; while :; do sleep 0.02; done`)
			f.Expect(w.cmd.Start()).To(Succeed())
			f.awaitText("led", "led\n")
			link.Cut()
			f.awaitText("reasons", "\n")
			w.signal(unix.SIGTERM)
			w.exitCode()
			f.Expect(f.content("reasons")()).To(HavePrefix("jobs deadline token\n"), w.stderr.String())
		})
	}
}

func TestTheLostHookLearnsThatTheProgramExited(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--lost-hook", f.hook(), "jobs", "--", "sh", "-c", "exit 3")
	f.Expect(w.run()).To(Equal(3), w.stderr.String())
	f.Expect(f.content("reasons")()).To(Equal("jobs work-ended token\n"))
}

func TestALostHookThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepare("--lost-hook", "false", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(0), w.stderr.String())
	f.Expect(w.stderr.String()).To(MatchRegexp(`WARN +Lost hook failed .*reason=work-ended`))
	w = f.prepare("--lost-hook", "./no-such-hook", "jobs", "--", "true")
	f.Expect(w.run()).To(Equal(supervise.ExitNotFound))
}
