//go:build linux || darwin

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/proctest"
)

// exitsOnce is a program that notes each of its terms, and exits once when the file gone appears.
const exitsOnce = `trap 'echo term >>terms' USR1; trap : USR2; trap 'exit 0' TERM; test -n "$ELECTION_TERM" && echo term >>terms
while :; do test -e gone && mkdir exited && exit 1; sleep 0.02; done 2>/dev/null`

func (f *runFixture) removeBucket() {
	f.t.Helper()
	f.g.Expect(f.bucket.JetStream().DeleteKeyValue(f.t.Context(), f.bucket.Bucket())).To(Succeed())
}

func (f *runFixture) makeBucket(ttl time.Duration) {
	f.t.Helper()
	_, err := election.CreateBucket(f.t.Context(), f.bucket.JetStream(), election.BucketConfig{Name: f.bucket.Bucket(), TTL: ttl})
	f.g.Expect(err).NotTo(HaveOccurred())
}

func TestRunThatHasLedWaitsForABucketThatIsGone(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	const ttl = 2 * time.Second
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
			f := newRunFixture(t, ttl)
			w := f.prepare(append(c.flags, "jobs", "--", "sh", "-c", exitsOnce)...)
			f.g.Expect(w.cmd.Start()).To(Succeed())
			f.awaitText("terms", "term\n")
			f.removeBucket()
			if c.exits {
				f.g.Expect(os.WriteFile(f.file("gone"), nil, 0o600)).To(Succeed())
			}
			f.g.Consistently(func() bool { return proctest.IsRunning(w.cmd.Process.Pid) }).WithTimeout(2 * ttl).Should(BeTrue())
			f.makeBucket(ttl)
			f.awaitText("terms", "term\nterm\n")
			w.signal(unix.SIGTERM)
			f.g.Expect(w.exitCode()).To(Equal(0), w.stderr.String())
			f.g.Expect(w.stderr.String()).To(And(ContainSubstring("Bucket is gone, waiting for it"), ContainSubstring("Bucket can be used again")))
		})
	}
}

func TestRunThatDoesNotWaitSaysHowToCreateABucketThatIsGone(t *testing.T) {
	t.Parallel()
	f := newLongLeaseFixture(t)
	w := f.start(exitsOnce, "--restart=always", "--no-wait")
	f.awaitText("terms", "term\n")
	f.removeBucket()
	f.g.Expect(os.WriteFile(f.file("gone"), nil, 0o600)).To(Succeed())
	f.g.Expect(w.exitCode()).To(Equal(supervise.ExitOwnError))
	f.g.Expect(strings.TrimSpace(w.stderr.String())).To(MatchRegexp(`election-cli: there is no bucket "LEADER_ELECTION" on .*: create it with 'election-cli bucket add'[^\n]*$`))
}
