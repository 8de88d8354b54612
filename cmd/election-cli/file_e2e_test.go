//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

// startFile starts 'file jobs PATH'.
func startFile(t *testing.T, path string, args ...string) *process {
	t.Helper()
	return startCandidate(t, append([]string{"file", "jobs", path, "--json"}, args...)...)
}

// awaitLeaderFile waits until the only candidate of an election leads, and returns its leader file. On a busy machine a candidate may win
// the key and lose it again before its leadership counts.
func (p *process) awaitLeaderFile(path string) leaderfile.Content {
	p.next(events.Started)
	return p.awaitTerm(path)
}

// awaitTerm waits until the only candidate of an election, which has no leader file, leads. It returns the file.
func (p *process) awaitTerm(path string) leaderfile.Content {
	var e events.Event
	var written []time.Time
	for e.Event != events.Leading {
		if content, err := leaderfile.Read(path); err == nil { // the candidate may lead before this test reads the event
			written = append(written, content.Written)
		}
		var line string
		p.g.Eventually(p.lines).Should(Receive(&line))
		p.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	}
	content := p.readEventually(path)
	p.g.Expect(append(written, content.Written)).To(HaveEach(BeTemporally(">=", e.Time)), "there is no leader file before leadership counts")
	p.g.Expect(content.Token).To(Equal(e.Token))
	return content
}

// startLeaderFile starts 'file jobs PATH' and waits until the candidate leads. It returns the path and the first content of the file too.
func startLeaderFile(t *testing.T, url string, args ...string) (c *process, path string, first leaderfile.Content) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "leader.json")
	c = startFile(t, path, append([]string{"-s", url, "--interval", "500ms"}, args...)...)
	return c, path, c.awaitLeaderFile(path)
}

// readEventually waits until there is a leader file, and returns its content.
func (p *process) readEventually(path string) (content leaderfile.Content) {
	p.g.Eventually(func() (err error) {
		content, err = leaderfile.Read(path)
		return err
	}).WithPolling(time.Millisecond).Should(Succeed())
	if text, err := os.ReadFile(path); err == nil { // the leader may have removed it meanwhile
		expectSchema(p.g, "leader-file", string(text))
	}
	return content
}

// absent says whether there is nothing at path, not even a symbolic link.
func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// checkCode returns the exit code of 'file --check'.
func checkCode(path string) int {
	code, _, _ := runInProcess("file", "--check", path)
	return code
}

// betweenReads is the time from one look at a leader file to the next: less than it takes to write one.
const betweenReads = 20 * time.Microsecond

func TestAReaderAlwaysSeesAWholeLeaderFileWhileItsHostLeads(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	server := newFixture(t, 15*time.Second).Server
	c, path, first := startLeaderFile(t, server.URL(), "--name", "web-1")
	g := c.g
	g.Expect(first.Name).To(Equal("web-1"))
	g.Expect(first.Key).To(Equal("jobs"))
	g.Expect(first.Bucket).To(Equal(cli.DefaultBucket))
	g.Expect(first.TTLS).To(Equal(15.0))
	g.Expect(first.Term).To(BeNumerically(">", 0))

	expiries := map[time.Time]bool{}
	for deadline := time.Now().Add(clitest.Timeout); len(expiries) < 3; time.Sleep(betweenReads) {
		content, err := leaderfile.Read(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(content.StaleReason(time.Now())).To(BeEmpty())
		g.Expect(content.Token).To(Equal(first.Token))
		expiries[content.Expiry] = true
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(checkCode(path)).To(Equal(cli.ExitOK))

	g.Expect(c.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	c.next(events.Lost)
	c.next(events.Released)
	g.Expect(absent(path)).To(BeTrue(), "the file is removed before the key is released")
	c.next(events.Stopped)
	g.Expect(c.wait()).To(Succeed(), c.stderr.String())
	left, err := os.ReadDir(filepath.Dir(path))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestTheLeaderFileIsRemovedBeforeAnotherHostHasOne(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	server := newFixture(t, 15*time.Second).Server
	a, one, old := startLeaderFile(t, server.URL(), "--name", "web-1")
	two := filepath.Join(t.TempDir(), "leader.json")
	b := startFile(t, two, "-s", server.URL(), "--name", "web-2")
	b.next(events.Started)
	b.next(events.Following)
	g := a.g
	g.Expect(absent(two)).To(BeTrue())
	g.Expect(a.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	for deadline := time.Now().Add(clitest.Timeout); absent(two); time.Sleep(betweenReads) {
		g.Expect(time.Now()).To(BeTemporally("<", deadline))
	}
	g.Expect(absent(one)).To(BeTrue(), "the first file is removed before the second appears")
	g.Expect(b.readEventually(two).Token > old.Token).To(BeTrue())
	g.Expect(a.cmd.Wait()).To(Succeed(), a.stderr.String())
}

func TestTheLeaderFileOfAStoppedProcessExpires(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	server := newFixture(t, 6*time.Second).Server
	ledBefore(t, server.URL())
	c, path, _ := startLeaderFile(t, server.URL())
	g := c.g
	g.Expect(c.cmd.Process.Signal(processes.SignalStop)).To(Succeed())
	content, err := leaderfile.Read(path)
	g.Expect(err).NotTo(HaveOccurred())
	if code := checkCode(path); time.Now().Before(content.Expiry) { // else this test was late
		g.Expect(code).To(Equal(cli.ExitOK))
	}
	g.Eventually(func() int { return checkCode(path) }).WithPolling(5 * time.Millisecond).Should(Equal(cli.ExitNegative))
	content, err = leaderfile.Read(path)
	g.Expect(err).NotTo(HaveOccurred(), "the process could not remove the file")
	g.Expect(time.Now()).To(BeTemporally(">=", content.Expiry))
	g.Expect(c.cmd.Process.Signal(processes.SignalContinue)).To(Succeed())
	g.Eventually(func() bool {
		now, err := leaderfile.Read(path)
		return err != nil || now.Term > content.Term
	}).WithPolling(time.Millisecond).Should(BeTrue())
}

func TestTheLeaderFileOfAKilledProcessExpiresAndTheNextStartRemovesIt(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	server := newFixture(t, 6*time.Second).Server
	ledBefore(t, server.URL())
	c, path, _ := startLeaderFile(t, server.URL())
	g := c.g
	g.Expect(c.cmd.Process.Kill()).To(Succeed())
	g.Expect(c.cmd.Wait()).NotTo(Succeed())
	content, err := leaderfile.Read(path)
	g.Expect(err).NotTo(HaveOccurred(), "the process could not remove the file")
	g.Eventually(func() int { return checkCode(path) }).WithPolling(5 * time.Millisecond).Should(Equal(cli.ExitNegative))
	g.Expect(time.Now()).To(BeTemporally(">=", content.Expiry))

	next := startFile(t, path, "-s", "nats://127.0.0.1:1")
	g.Eventually(func() bool { return absent(path) }).Should(BeTrue(), "even without a server")
	next.interrupt()
}

func TestTheLeaderFileIsRemovedBeforeTheLeaseEndsWhenTheHostIsCutOff(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	g := NewWithT(t)
	server := newFixture(t, 6*time.Second).Server
	ledBefore(t, server.URL())
	link, url := linkTo(t, server.URL())
	c, path, content := startLeaderFile(t, url)
	for episode, inTime := 1, false; !inTime; episode++ { // a busy host may remove the file late, which is stale then
		g.Expect(episode).To(BeNumerically("<=", 5), "the file is removed before its expiry")
		if episode > 1 {
			link.Heal()
			content = c.awaitTerm(path)
		}
		link.Cut()
		var fresh time.Time // when the file was certainly there and fresh
		for ; ; time.Sleep(betweenReads) {
			now := time.Now() // before the look: the file is there later
			if absent(path) {
				break
			}
			if read, err := leaderfile.Read(path); err == nil {
				content = read // a renewal may have been in flight when the link was cut
			}
			if now.Before(content.Expiry) {
				fresh = now
			}
		}
		gone := time.Now()
		inTime = gone.Before(content.Expiry)
		g.Expect(gone).To(BeTemporally(">", content.Expiry.Add(-leaderfile.MinMargin-time.Second/10)), "the file is removed shortly before its expiry")
		lost := c.next(events.Lost)
		g.Expect(lost.Reason).To(Equal("deadline"))
		g.Expect(fresh).To(BeTemporally("<=", lost.Time), "the file is never fresh after the end of leadership")
	}
	c.interrupt(events.Stopped)
	g.Expect(c.stderr.String()).To(ContainSubstring("not renewed in time"))
}

func TestALeaderThatCannotMaintainItsFileReleasesTheKeyAndExits(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newFixture(t, 15*time.Second)
	c, path, _ := startLeaderFile(t, f.Server.URL())
	g := c.g
	g.Expect(os.WriteFile(path, []byte("another program's data"), 0o600)).To(Succeed())
	c.next(events.Lost)
	c.next(events.Released)
	c.next(events.Stopped)
	g.Expect(c.wait()).NotTo(Succeed())
	g.Expect(c.cmd.ProcessState.ExitCode()).To(Equal(cli.ExitFailure))
	g.Expect(c.stderr.String()).To(And(ContainSubstring("gives up leadership"), ContainSubstring("not a leader file")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("another program's data"))
	o, err := observe.New(f.Bucket)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { // a busy server may store the release later
		_, err := o.Leader(context.Background(), "jobs")
		return err
	}).Should(MatchError(election.ErrNoLeader))
}

func TestASecondProcessWithTheSamePathIsRefusedAndTheFirstStillLeads(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	server := newFixture(t, 15*time.Second).Server
	c, path, content := startLeaderFile(t, server.URL())
	code, stdout, stderr := runInProcess("file", "other", path, "-s", server.URL())
	c.g.Expect(code).To(Equal(cli.ExitFailure))
	c.g.Expect(stdout).To(BeEmpty())
	c.g.Expect(stderr).To(And(ContainSubstring("another process"), ContainSubstring(fmt.Sprintf("%s.lock", path))))
	c.g.Expect(c.readEventually(path).Token).To(Equal(content.Token))
	c.interrupt(events.Lost, events.Released, events.Stopped)
}
