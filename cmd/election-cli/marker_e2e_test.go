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
	"github.com/natscampaign/election/observe"
)

// startFile runs 'file jobs PATH'.
func startFile(t *testing.T, path string, args ...string) *campaigner {
	t.Helper()
	return startCandidate(t, append([]string{"file", "jobs", path, "--json"}, args...)...)
}

// leading waits for a candidate that is the only one to lead, and for its marker. On a machine that is busy the first
// win may be lost again before it counts.
func (c *campaigner) leading(path string) marker {
	c.next(eventStarted)
	var e event
	for e.Event != eventLeading {
		c.g.Expect(absent(path)).To(BeTrue(), "leadership does not count yet")
		var line string
		c.g.Eventually(c.lines).WithTimeout(patience).Should(Receive(&line))
		c.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	}
	m := c.marked(path)
	c.g.Expect(m.Token).To(Equal(e.Token))
	return m
}

// leadingFile runs 'file jobs PATH' at a server until it leads, and returns its path and its first marker too.
func leadingFile(t *testing.T, url string, args ...string) (c *campaigner, path string, m marker) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "leader.json")
	c = startFile(t, path, append([]string{"-s", url}, args...)...)
	return c, path, c.leading(path)
}

// marked waits for a marker.
func (c *campaigner) marked(path string) (m marker) {
	c.g.Eventually(func() (err error) {
		m, err = readMarker(path)
		return err
	}).WithTimeout(patience).WithPolling(time.Millisecond).Should(Succeed())
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
	e, _ := serverWithBucket(t, 4*time.Second)
	c, path, first := leadingFile(t, e.url(), "--name", "web-1")
	g := c.g
	g.Expect(first.Name).To(Equal("web-1"))
	g.Expect(first.Key).To(Equal("jobs"))
	g.Expect(first.Bucket).To(Equal(defaultBucket))
	g.Expect(first.TTLS).To(Equal(4.0))
	g.Expect(first.Term).To(BeNumerically(">", 0))

	expiries := map[time.Time]bool{}
	for deadline := time.Now().Add(patience); len(expiries) < 4; {
		m, err := readMarker(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.doubt(time.Now())).To(BeEmpty())
		g.Expect(m.Token).To(Equal(first.Token))
		expiries[m.Expiry] = true
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(checks(path)).To(Equal(exitOK))

	g.Expect(c.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	c.next(eventLost)
	c.next(eventReleased)
	g.Expect(absent(path)).To(BeTrue(), "it is removed before the key is released")
	c.next(eventStopped)
	g.Expect(c.cmd.Wait()).To(Succeed(), c.stderr.String())
	left, err := os.ReadDir(filepath.Dir(path))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestTheMarkerIsGoneBeforeAnotherHostHasOne(t *testing.T) {
	t.Parallel()
	e, _ := serverWithBucket(t, 6*time.Second)
	a, one, old := leadingFile(t, e.url(), "--name", "web-1")
	two := filepath.Join(t.TempDir(), "leader.json")
	b := startFile(t, two, "-s", e.url(), "--name", "web-2")
	b.next(eventStarted)
	b.next(eventFollowing)
	g := a.g
	g.Expect(absent(two)).To(BeTrue())
	g.Expect(a.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	for deadline := time.Now().Add(patience); absent(two); {
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(absent(one)).To(BeTrue(), "when the other appears, it has gone")
	g.Expect(b.marked(two).Token > old.Token).To(BeTrue())
	g.Expect(a.cmd.Wait()).To(Succeed(), a.stderr.String())
}

func TestTheMarkerOfAProcessThatIsStoppedExpires(t *testing.T) {
	t.Parallel()
	e, _ := serverWithBucket(t, 2*time.Second)
	c, path, _ := leadingFile(t, e.url())
	g := c.g
	g.Expect(c.cmd.Process.Signal(signalStop)).To(Succeed())
	g.Expect(checks(path)).To(Equal(exitOK))
	g.Eventually(func() int { return checks(path) }).WithTimeout(patience).WithPolling(5 * time.Millisecond).Should(Equal(exitNegative))
	m, err := readMarker(path)
	g.Expect(err).NotTo(HaveOccurred(), "nobody could remove it")
	g.Expect(time.Now()).To(BeTemporally(">=", m.Expiry))
	g.Expect(c.cmd.Process.Signal(signalContinue)).To(Succeed())
	g.Eventually(func() bool {
		now, err := readMarker(path)
		return err != nil || now.Term > m.Term
	}).WithTimeout(patience).WithPolling(time.Millisecond).Should(BeTrue())
}

func TestTheMarkerOfAProcessThatWasKilledExpiresAndTheNextStartRemovesIt(t *testing.T) {
	t.Parallel()
	e, _ := serverWithBucket(t, 2*time.Second)
	c, path, _ := leadingFile(t, e.url())
	g := c.g
	g.Expect(c.cmd.Process.Kill()).To(Succeed())
	g.Expect(c.cmd.Wait()).NotTo(Succeed())
	m, err := readMarker(path)
	g.Expect(err).NotTo(HaveOccurred(), "nobody could remove it")
	g.Eventually(func() int { return checks(path) }).WithTimeout(patience).WithPolling(5 * time.Millisecond).Should(Equal(exitNegative))
	g.Expect(time.Now()).To(BeTemporally(">=", m.Expiry))

	next := startFile(t, path, "-s", "nats://127.0.0.1:1")
	g.Eventually(func() bool { return absent(path) }).WithTimeout(patience).Should(BeTrue(), "also where there is no server")
	next.interrupt()
}

func TestTheMarkerIsRemovedBeforeTheLeaseEndsWhenTheHostIsCutOff(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, _ := serverWithBucket(t, 3*time.Second)
	w, err := openWire([]string{strings.TrimPrefix(e.url(), "nats://")}, 0, rand.New(rand.NewPCG(1, 1)))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.close)
	c, path, m := leadingFile(t, w.urls()[0])
	w.Cut()
	for !absent(path) {
		now := time.Now()
		if read, err := readMarker(path); err == nil {
			m = read // a renewal may have been on its way
		}
		g.Expect(now).To(BeTemporally("<", m.Expiry), "it is removed before it ends")
	}
	g.Expect(time.Now()).To(BeTemporally(">", m.Expiry.Add(-shortestAhead-time.Second/10)), "but not much")
	g.Expect(c.next(eventLost).Reason).To(Equal("deadline"))
	w.mend()
	c.interrupt(eventStopped)
	g.Expect(c.stderr.String()).To(ContainSubstring("not renewed in time"))
}

func TestAMarkerThatCannotBeKeptEndsLeadershipAndTheKeyIsReleased(t *testing.T) {
	t.Parallel()
	e, s := serverWithBucket(t, 6*time.Second)
	c, path, _ := leadingFile(t, e.url())
	g := c.g
	g.Expect(os.WriteFile(path, []byte("somebody else's"), 0o600)).To(Succeed())
	c.next(eventLost)
	c.next(eventReleased)
	c.next(eventStopped)
	g.Expect(c.cmd.Wait()).NotTo(Succeed())
	g.Expect(c.cmd.ProcessState.ExitCode()).To(Equal(exitError))
	g.Expect(c.stderr.String()).To(And(ContainSubstring("gives up leadership"), ContainSubstring("no marker")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("somebody else's"))
	bucket, err := s.findBucket(t.Context(), defaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	o, err := observe.New(bucket)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = o.Leader(context.Background(), "jobs")
	g.Expect(err).To(MatchError(election.ErrNoLeader))
}

func TestASecondProcessWithTheSamePathIsRefusedAndTheFirstLeadsOn(t *testing.T) {
	t.Parallel()
	e, _ := serverWithBucket(t, 6*time.Second)
	c, path, m := leadingFile(t, e.url())
	code, stdout, stderr := runs(t, "file", "other", path, "-s", e.url())
	c.g.Expect(code).To(Equal(exitError))
	c.g.Expect(stdout).To(BeEmpty())
	c.g.Expect(stderr).To(And(ContainSubstring("another process"), ContainSubstring(fmt.Sprintf("%s.lock", path))))
	c.g.Expect(c.marked(path).Token).To(Equal(m.Token))
	c.interrupt(eventLost, eventReleased, eventStopped)
}
