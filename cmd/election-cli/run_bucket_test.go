//go:build linux || darwin

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/proctest"
)

// exitsOnce is a program that notes each of its terms, and exits once when the file gone appears.
const exitsOnce = `trap 'echo term >>terms' USR1; trap : USR2; trap 'exit 0' TERM; test -n "$ELECTION_TERM" && echo term >>terms
while :; do test -e gone && mkdir exited && exit 1; sleep 0.02; done 2>/dev/null`

func (f *runFixture) makeBucket(ttl time.Duration) {
	f.T.Helper()
	_, err := election.CreateBucket(f.T.Context(), f.Bucket.JetStream(), election.BucketConfig{Name: f.Bucket.Bucket(), TTL: ttl})
	f.Expect(err).NotTo(HaveOccurred())
}

func TestRunThatHasLedWaitsForABucketThatIsGone(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	const ttl = 10 * time.Second // a busy host loses no lease of it
	for name, c := range map[string]struct {
		flags []string
		exits bool
	}{
		"lease not renewed": {},
		"program exits":     {[]string{"--restart=always"}, true},
		"signal mode":       {[]string{"--restart=always", "--on-lost=signal"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRunFixture(t, ttl, "--interval", "1s")
			w := f.prepare(append(c.flags, "jobs", "--", "sh", "-c", exitsOnce)...)
			f.Expect(w.cmd.Start()).To(Succeed())
			f.awaitText("terms", "term\n")
			f.RemoveBucket()
			if c.exits {
				f.Expect(os.WriteFile(f.file("gone"), nil, 0o600)).To(Succeed())
			}
			f.Consistently(func() bool { return proctest.IsRunning(w.cmd.Process.Pid) }).WithTimeout(3 * ttl / 2).Should(BeTrue())
			f.makeBucket(ttl)
			f.awaitText("terms", "term\nterm\n")
			w.terminate(0)
			f.Expect(w.stderr.String()).To(And(ContainSubstring("Bucket is gone, waiting for it"), ContainSubstring("Bucket can be used again")))
		})
	}
}

// TestRunAdaptsToANewTTL edits the TTL as the fix of a check says, and the other way: the run that was given no interval takes that of the new TTL, and
// divides its lease anew.
func TestRunAdaptsToANewTTL(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 2*time.Minute)
	f.ok("pause", "jobs", "--force")
	one := f.prepare("--name", "one", "jobs", "--", "bash", "-c", `echo >>leads; sleep 1000`)
	followed := followLog(f, one.cmd)
	followed.says("paused by an operator")
	f.ok("bucket", "edit", "--ttl", "15s")
	f.ok("resume", "jobs")
	f.awaitText("leads", "\n")
	f.ok("bucket", "edit", "--ttl", "2m")
	followed.says("Lease is divided by the bucket's new TTL")
	f.Consistently(f.content("leads")).WithTimeout(5*time.Second).Should(Equal("\n"), "the program goes on")
	one.terminate(143)
}

func TestRunThatDoesNotWaitSaysHowToCreateABucketThatIsGone(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(exitsOnce, "--restart=always", "--no-wait")
	f.awaitText("terms", "term\n")
	f.RemoveBucket()
	f.Expect(os.WriteFile(f.file("gone"), nil, 0o600)).To(Succeed())
	f.Expect(w.exitCode()).To(Equal(supervise.ExitOwnError))
	f.Expect(strings.TrimSpace(w.stderr.String())).To(MatchRegexp(`election-cli: there is no bucket "LEADER_ELECTION" on .*: create it with 'election-cli bucket add'[^\n]*$`))
}
