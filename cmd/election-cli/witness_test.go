//go:build linux || darwin

package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/witness"
	"github.com/natscampaign/election/observe"
)

// socketPath returns the path of a socket that is not there yet, in a folder whose path is short enough.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "witness-")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "socket")
}

// startWitness starts a witness for programs on this host, and returns once they can connect.
func startWitness(t *testing.T, url, socket string) *process {
	t.Helper()
	w := startServing(t, "witness", "-s", url, "--socket", socket, "--verbose")
	w.says("Witness is ready", socket)
	return w
}

// startWatched starts a candidate that names the socket of a witness.
func startWatched(t *testing.T, url, socket, name string, args ...string) *process {
	t.Helper()
	cmd, _, _ := command(t, append(args, "-s", url, "--name", name, "--interval", "500ms", "--json")...)
	cmd.Env = append(os.Environ(), witness.HostVariable+"=unix://"+socket)
	c := follow(NewWithT(t), cmd)
	c.next(events.Started)
	return c
}

// leads waits until a candidate leads that has not led before.
func (p *process) leads() {
	p.next(events.Elected)
	p.next(events.Leading)
}

func TestKilledCampaignIsReplacedThoughItsLeaseGoesOn(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("the witness starts after the campaign: %v", late), func(t *testing.T) {
			t.Parallel()
			f, socket := newFixture(t, clitest.LongTTL), socketPath(t)
			ledBefore(t, f.Server.URL())
			url := f.Server.URL()
			var w *process
			if !late {
				w = startWitness(t, url, socket)
			}
			one := startWatched(t, url, socket, "web-1", "campaign", "jobs")
			one.leads()
			seen := startWatch(t, url, "jobs")
			seen.next(observe.Leading, "web-1")
			two := startWatched(t, url, socket, "web-2", "campaign", "jobs")
			two.next(events.Following)
			if late {
				w = startWitness(t, url, socket)
			}
			w.says("Term is watched", "web-1")
			one.kill()
			f.Expect(two.next(events.Elected).Reason).To(Equal("released"))
			two.next(events.Leading)
			w.says("Released the key of a leader that has died", "web-1")
			// No reason, if web-2 has replaced the release before it was delivered: a consumer leaves out what is replaced.
			f.Expect(seen.next(observe.Released, "web-1").Reason).To(Or(Equal(election.ReasonDied), BeEmpty()))
			seen.next(observe.Elected, "web-2")
		})
	}
}

func TestCampaignThatStopsInOrderLeavesTheWitnessNothingToRelease(t *testing.T) {
	t.Parallel()
	f, socket := newFixture(t, clitest.LongTTL), socketPath(t)
	ledBefore(t, f.Server.URL())
	w := startWitness(t, f.Server.URL(), socket)
	c := startWatched(t, f.Server.URL(), socket, "web-1", "campaign", "jobs")
	c.leads()
	w.says("Term is watched", "web-1")
	c.interrupt(events.Lost, events.Released, events.Stopped)
	f.Eventually(f.Server.Server.NumClients).Should(Equal(1), "the witness has no connection while nobody leads: that of the test is left")
	f.Expect(w.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	for line := ""; !strings.Contains(line, "Witness has stopped"); {
		f.Eventually(w.lines).Should(Receive(&line))
		f.Expect(line).NotTo(ContainSubstring("died"))
	}
	f.Expect(w.cmd.Wait()).To(Succeed())
}

// A leader file that a killed process leaves behind is fresh until its expiry, whatever a witness could prove.
func TestNoOtherHostLeadsWhileTheLeaderFileOfAKilledProcessIsFresh(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f, socket := newFixture(t, 10*time.Second), socketPath(t)
	ledBefore(t, f.Server.URL())
	startWitness(t, f.Server.URL(), socket)
	left, other := filepath.Join(t.TempDir(), "leader.json"), filepath.Join(t.TempDir(), "leader.json")
	one := startWatched(t, f.Server.URL(), socket, "web-1", "file", "jobs", left)
	one.leads()
	one.readEventually(left)
	two := startWatched(t, f.Server.URL(), socket, "web-2", "file", "jobs", other)
	two.next(events.Following)
	one.kill()
	two.next(events.Elected)
	result, err := leaderfile.Check(left, time.Now())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(result.Fresh).To(BeFalse())
	f.Expect(result.Reason).To(ContainSubstring("expired"))
}

func TestWitnessGoesOnWhenItsServerWasGone(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f, socket := newFixture(t, clitest.LongTTL), socketPath(t)
	ledBefore(t, f.Server.URL())
	url := f.Server.URL()
	w := startWitness(t, url, socket)
	c := startWatched(t, url, socket, "web-1", "campaign", "jobs")
	c.leads()
	said := ""
	f.Eventually(func() string { // the order of the two lines is open
		select {
		case line := <-w.lines:
			said += line + "\n"
		default:
		}
		return said
	}).Should(And(MatchRegexp("Term is watched.*web-1"), MatchRegexp("Connected.*"+regexp.QuoteMeta(url))))
	port, err := strconv.Atoi(url[strings.LastIndex(url, ":")+1:])
	f.Expect(err).NotTo(HaveOccurred())
	f.Server.Stop()
	w.says("Connection lost")
	f.Expect(c.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	_ = c.cmd.Wait() // the witness gives up a connection that is lost

	server, err := natstest.ListenAgain(func() (*embedded.Server, error) { return embedded.Start(embedded.Config{Port: port}) })
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Stop)
	code, _, stderr := runInProcess("bucket", "add", "--ttl", clitest.LongTTL.String(), "-s", url)
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	ledBefore(t, url)
	one := startWatched(t, url, socket, "web-2", "campaign", "jobs")
	one.leads()
	w.says("Term is watched", "web-2")
	two := startWatched(t, url, socket, "web-3", "campaign", "jobs")
	two.next(events.Following)
	one.kill()
	two.leads()
}

func TestWitnessRefusesASocketOnWhichAnotherListensReplacesAStaleOneAndRemovesItsOwn(t *testing.T) {
	t.Parallel()
	f, socket := newFixture(t, clitest.LongTTL), socketPath(t)
	first := startWitness(t, f.Server.URL(), socket)
	code, _, stderr := f.run("witness", "--socket", socket)
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(HavePrefix(fmt.Sprintf("election-cli: another witness listens on --socket %q: stop it", socket)))
	first.kill()
	f.Expect(socket).To(BeAnExistingFile(), "a killed witness leaves its socket behind")

	second := startWitness(t, f.Server.URL(), socket)
	f.Expect(second.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	f.Expect(second.cmd.Wait()).To(Succeed())
	f.Expect(socket).NotTo(BeAnExistingFile())
}

func TestWitnessKeepsEverythingThatIsNoStaleSocket(t *testing.T) {
	g := NewWithT(t)
	path := socketPath(t)
	folder := filepath.Dir(path)
	file, link, datagrams := filepath.Join(folder, "file"), filepath.Join(folder, "link"), filepath.Join(folder, "datagrams")
	g.Expect(os.WriteFile(file, []byte("precious"), 0o600)).To(Succeed())
	g.Expect(os.Symlink(file, link)).To(Succeed())
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagrams, Net: "unixgram"})
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	for kept, reason := range map[string]string{file: "is no socket", link: "is no socket", folder: "is no socket", datagrams: "cannot be used"} {
		before, err := os.Lstat(kept)
		g.Expect(err).NotTo(HaveOccurred())
		code, _, stderr := runInProcess("witness", "--socket", kept)
		g.Expect(code).To(Equal(cli.ExitFailure), kept)
		g.Expect(stderr).To(And(ContainSubstring(reason), ContainSubstring("so it stays as it is"), ContainSubstring(strconv.Quote(kept))))
		after, err := os.Lstat(kept)
		g.Expect(err).NotTo(HaveOccurred(), kept)
		g.Expect(os.SameFile(before, after)).To(BeTrue(), kept)
	}
	g.Expect(os.ReadFile(file)).To(BeEquivalentTo("precious"))
}

func TestSocketOfAWitnessHasTheModeThatIsAskedFor(t *testing.T) {
	g := NewWithT(t)
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		path := socketPath(t)
		socket, err := listenAt(path, mode)
		g.Expect(err).NotTo(HaveOccurred())
		info, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode()).To(Equal(fs.ModeSocket | mode))
		g.Expect(socket.Close()).To(Succeed())
		g.Expect(path).NotTo(BeAnExistingFile())
	}
	longest := socketPath(t)
	longest += strings.Repeat("x", maxSocketPath-len(longest))
	socket, err := listenAt(longest, 0o600)
	g.Expect(err).NotTo(HaveOccurred(), "the system allows a path of %d bytes", maxSocketPath)
	g.Expect(socket.Close()).To(Succeed())
}

func TestCampaignRefusesAWrongWitnessBeforeItConnects(t *testing.T) {
	g := NewWithT(t)
	for _, value := range []string{"tcp://127.0.0.1:1", "/run/witness.sock", "unix://witness.sock"} {
		t.Setenv(witness.HostVariable, value)
		code, stdout, stderr := runInProcess("campaign", "jobs", "-s", "nats://127.0.0.1:1")
		g.Expect(code).To(Equal(cli.ExitFailure))
		g.Expect(stdout).To(BeEmpty())
		g.Expect(stderr).To(And(HavePrefix(fmt.Sprintf("election-cli: ELECTION_WITNESS is %q", value)), ContainSubstring("unix:///run/election/witness.sock")))
	}
}
