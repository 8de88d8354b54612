//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/events"
	"github.com/natscampaign/election/internal/leaderfile"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/observe"
)

// startFile runs 'file jobs PATH'.
func startFile(t *testing.T, path string, args ...string) *campaigner {
	t.Helper()
	return startCandidate(t, append([]string{"file", "jobs", path, "--json"}, args...)...)
}

// leading waits for a candidate that is the only one to lead, and for its marker. On a machine that is busy the first
// win may be lost again before it counts.
func (c *campaigner) leading(path string) leaderfile.Marker {
	c.next(events.Started)
	var e events.Event
	for e.Event != events.Leading {
		c.g.Expect(absent(path)).To(BeTrue(), "leadership does not count yet")
		var line string
		c.g.Eventually(c.lines).WithTimeout(clitest.Patience).Should(Receive(&line))
		c.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	}
	m := c.marked(path)
	c.g.Expect(m.Token).To(Equal(e.Token))
	return m
}

// leadingFile runs 'file jobs PATH' at a server until it leads, and returns its path and its first marker too.
func leadingFile(t *testing.T, url string, args ...string) (c *campaigner, path string, m leaderfile.Marker) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "leader.json")
	c = startFile(t, path, append([]string{"-s", url}, args...)...)
	return c, path, c.leading(path)
}

// marked waits for a marker.
func (c *campaigner) marked(path string) (m leaderfile.Marker) {
	c.g.Eventually(func() (err error) {
		m, err = leaderfile.Read(path)
		return err
	}).WithTimeout(clitest.Patience).WithPolling(time.Millisecond).Should(Succeed())
	return m
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// checks returns the exit code of --check.
func checks(path string) int {
	code, _, _ := try("file", "--check", path)
	return code
}

func TestAReaderNeverMissesTheMarkerNorSeesAPartOfItWhileItsHostLeads(t *testing.T) {
	t.Parallel()
	e, _ := clitest.ServerWithBucket(t, 4*time.Second)
	c, path, first := leadingFile(t, e.URL(), "--name", "web-1")
	g := c.g
	g.Expect(first.Name).To(Equal("web-1"))
	g.Expect(first.Key).To(Equal("jobs"))
	g.Expect(first.Bucket).To(Equal(cli.DefaultBucket))
	g.Expect(first.TTLS).To(Equal(4.0))
	g.Expect(first.Term).To(BeNumerically(">", 0))

	expiries := map[time.Time]bool{}
	for deadline := time.Now().Add(clitest.Patience); len(expiries) < 4; {
		m, err := leaderfile.Read(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Doubt(time.Now())).To(BeEmpty())
		g.Expect(m.Token).To(Equal(first.Token))
		expiries[m.Expiry] = true
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(checks(path)).To(Equal(cli.ExitOK))

	g.Expect(c.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	c.next(events.Lost)
	c.next(events.Released)
	g.Expect(absent(path)).To(BeTrue(), "it is removed before the key is released")
	c.next(events.Stopped)
	g.Expect(c.cmd.Wait()).To(Succeed(), c.stderr.String())
	left, err := os.ReadDir(filepath.Dir(path))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestTheMarkerIsGoneBeforeAnotherHostHasOne(t *testing.T) {
	t.Parallel()
	e, _ := clitest.ServerWithBucket(t, 6*time.Second)
	a, one, old := leadingFile(t, e.URL(), "--name", "web-1")
	two := filepath.Join(t.TempDir(), "leader.json")
	b := startFile(t, two, "-s", e.URL(), "--name", "web-2")
	b.next(events.Started)
	b.next(events.Following)
	g := a.g
	g.Expect(absent(two)).To(BeTrue())
	g.Expect(a.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	for deadline := time.Now().Add(clitest.Patience); absent(two); {
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(absent(one)).To(BeTrue(), "when the other appears, it has gone")
	g.Expect(b.marked(two).Token > old.Token).To(BeTrue())
	g.Expect(a.cmd.Wait()).To(Succeed(), a.stderr.String())
}

func TestTheMarkerOfAProcessThatIsStoppedExpires(t *testing.T) {
	t.Parallel()
	e, _ := clitest.ServerWithBucket(t, 2*time.Second)
	c, path, _ := leadingFile(t, e.URL())
	g := c.g
	g.Expect(c.cmd.Process.Signal(processes.SignalStop)).To(Succeed())
	g.Expect(checks(path)).To(Equal(cli.ExitOK))
	g.Eventually(func() int { return checks(path) }).WithTimeout(clitest.Patience).WithPolling(5 * time.Millisecond).Should(Equal(cli.ExitNegative))
	m, err := leaderfile.Read(path)
	g.Expect(err).NotTo(HaveOccurred(), "nobody could remove it")
	g.Expect(time.Now()).To(BeTemporally(">=", m.Expiry))
	g.Expect(c.cmd.Process.Signal(processes.SignalContinue)).To(Succeed())
	g.Eventually(func() bool {
		now, err := leaderfile.Read(path)
		return err != nil || now.Term > m.Term
	}).WithTimeout(clitest.Patience).WithPolling(time.Millisecond).Should(BeTrue())
}

func TestTheMarkerOfAProcessThatWasKilledExpiresAndTheNextStartRemovesIt(t *testing.T) {
	t.Parallel()
	e, _ := clitest.ServerWithBucket(t, 2*time.Second)
	c, path, _ := leadingFile(t, e.URL())
	g := c.g
	g.Expect(c.cmd.Process.Kill()).To(Succeed())
	g.Expect(c.cmd.Wait()).NotTo(Succeed())
	m, err := leaderfile.Read(path)
	g.Expect(err).NotTo(HaveOccurred(), "nobody could remove it")
	g.Eventually(func() int { return checks(path) }).WithTimeout(clitest.Patience).WithPolling(5 * time.Millisecond).Should(Equal(cli.ExitNegative))
	g.Expect(time.Now()).To(BeTemporally(">=", m.Expiry))

	next := startFile(t, path, "-s", "nats://127.0.0.1:1")
	g.Eventually(func() bool { return absent(path) }).WithTimeout(clitest.Patience).Should(BeTrue(), "also where there is no server")
	next.interrupt()
}

func TestTheMarkerIsRemovedBeforeTheLeaseEndsWhenTheHostIsCutOff(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, _ := clitest.ServerWithBucket(t, 3*time.Second)
	w, err := processes.OpenLink([]string{strings.TrimPrefix(e.URL(), "nats://")}, 0, rand.New(rand.NewPCG(1, 1)))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.Close)
	c, path, m := leadingFile(t, w.URLs()[0])
	w.Cut()
	for !absent(path) {
		now := time.Now()
		if read, err := leaderfile.Read(path); err == nil {
			m = read // a renewal may have been on its way
		}
		g.Expect(now).To(BeTemporally("<", m.Expiry), "it is removed before it ends")
	}
	g.Expect(time.Now()).To(BeTemporally(">", m.Expiry.Add(-leaderfile.MinAhead-time.Second/10)), "but not much")
	g.Expect(c.next(events.Lost).Reason).To(Equal("deadline"))
	w.Mend()
	c.interrupt(events.Stopped)
	g.Expect(c.stderr.String()).To(ContainSubstring("not renewed in time"))
}

func TestAMarkerThatCannotBeKeptEndsLeadershipAndTheKeyIsReleased(t *testing.T) {
	t.Parallel()
	e, s := clitest.ServerWithBucket(t, 6*time.Second)
	c, path, _ := leadingFile(t, e.URL())
	g := c.g
	g.Expect(os.WriteFile(path, []byte("somebody else's"), 0o600)).To(Succeed())
	c.next(events.Lost)
	c.next(events.Released)
	c.next(events.Stopped)
	g.Expect(c.cmd.Wait()).NotTo(Succeed())
	g.Expect(c.cmd.ProcessState.ExitCode()).To(Equal(cli.ExitFailure))
	g.Expect(c.stderr.String()).To(And(ContainSubstring("gives up leadership"), ContainSubstring("no marker")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("somebody else's"))
	bucket, err := s.FindBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	o, err := observe.New(bucket)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = o.Leader(context.Background(), "jobs")
	g.Expect(err).To(MatchError(election.ErrNoLeader))
}

func TestASecondProcessWithTheSamePathIsRefusedAndTheFirstLeadsOn(t *testing.T) {
	t.Parallel()
	e, _ := clitest.ServerWithBucket(t, 6*time.Second)
	c, path, m := leadingFile(t, e.URL())
	code, stdout, stderr := runs(t, "file", "other", path, "-s", e.URL())
	c.g.Expect(code).To(Equal(cli.ExitFailure))
	c.g.Expect(stdout).To(BeEmpty())
	c.g.Expect(stderr).To(And(ContainSubstring("another process"), ContainSubstring(fmt.Sprintf("%s.lock", path))))
	c.g.Expect(c.marked(path).Token).To(Equal(m.Token))
	c.interrupt(events.Lost, events.Released, events.Stopped)
}
