//go:build linux || darwin

package main

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli/supervise"
)

func TestProgramInSignalModeIsNotifiedOfWinAndLoss(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 15*time.Second, "--interval", "1s") // after a deletion the winner stands down for one interval
	w := f.start(`echo "term ${ELECTION_TERM-none}" >>notified; trap 'echo won >>notified' USR1; trap 'echo lost >>notified' HUP; trap 'exit 0' TERM
		while :; do sleep 0.02; done`, "--on-lost=signal", "--lost", "HUP")
	f.awaitText("notified", "term none\nwon\n")
	f.g.Expect(f.bucket.Delete(t.Context(), "jobs")).To(Succeed())
	f.awaitText("notified", "term none\nwon\nlost\nwon\n")
	w.signal(unix.SIGTERM)
	f.g.Expect(w.exitCode()).To(Equal(0))
	f.g.Expect(f.content("notified")()).To(Equal("term none\nwon\nlost\nwon\n"))
	f.expectReleased()
}

func TestProgramInSignalModeStartsWithoutAServer(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.prepareWithServer("nats://127.0.0.1:1", "--on-lost=signal", "jobs", "--", "sh", "-c", "echo here; exit 8")
	f.g.Expect(w.run()).To(Equal(8))
	f.g.Expect(w.stdout.String()).To(Equal("here\n"))
}

func TestProgramInSignalModeIsNotifiedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{supervise.OnExitKeep, supervise.OnExitRelease} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newLongLeaseFixture(t)
			w := f.start(`trap 'echo won >>notified; exit 1' USR1; trap : USR2; while :; do sleep 0.02; done`,
				"--on-lost=signal", "--restart=on-failure", "--on-exit="+mode, "-v")
			for n := range 3 {
				f.awaitText("notified", strings.Repeat("won\n", n+1))
			}
			w.signal(unix.SIGTERM)
			f.g.Expect(w.exitCode()).To(BeNumerically(">", 0))
		})
	}
}
