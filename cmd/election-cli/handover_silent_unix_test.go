//go:build linux || darwin

package main

import (
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/proctest"
)

// waitFor returns how long the error of a handover says to wait.
func waitFor(g Gomega, stderr string) time.Duration {
	m := regexp.MustCompile(`\n\s*Fix: wait (\S+) for the end of its lease: `).FindStringSubmatch(stderr)
	g.Expect(m).NotTo(BeNil(), stderr)
	d, err := time.ParseDuration(m[1])
	g.Expect(err).NotTo(HaveOccurred())
	return d
}

// A leader that hangs must not be evicted: it may lead on until its lease ends, and its successor leads sooner if nobody evicts it.
func TestResignOfALeaderThatHangsSaysHowLongToWaitForTheNext(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newFleet(t, 30*time.Second, "web-2") // its lease outlasts the commands below
	proctest.Stop(t, f.leader.cmd.Process.Pid)
	const overdue = `(?m)^election-cli: "web-1" does not answer, and has not renewed for \S+: it is cut off or hangs\s`
	const silent = `(?m)^election-cli: "web-1" does not answer: it is cut off, hangs, or cannot be asked\s`
	code, _, stderr := f.run("resign", "jobs", "--force")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(And(MatchRegexp(silent), ContainSubstring("sooner than after an eviction")))
	code, _, stderr = f.run("transfer", "jobs", "--to", "web-2")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(And(Or(MatchRegexp(silent), MatchRegexp(overdue)), ContainSubstring("sooner than after an eviction"))) // each command takes three seconds
	var said time.Time
	f.Eventually(func(g Gomega) {
		code, _, stderr = f.run("resign", "jobs", "--force")
		said = time.Now()
		g.Expect(code).To(Equal(cli.ExitNegative))
		g.Expect(stderr).To(MatchRegexp(overdue))
	}).Should(Succeed(), "a renewal is overdue")
	f.Expect(stderr).NotTo(ContainSubstring("evict jobs"))
	f.others["web-2"].next(events.Elected)
	f.others["web-2"].next(events.Leading)
	f.Expect(time.Since(said)).To(BeNumerically("<", waitFor(f, stderr)+10*time.Second), "the rest is for a busy host")
	f.Expect(f.leader.cmd.Process.Signal(unix.SIGCONT)).To(Succeed())
	f.leader.next(events.Lost)
}

// A leader that renews and cannot be asked may be evicted.
func TestResignOfALeaderThatCannotBeAskedSaysHowToReplaceIt(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newFixture(t, 10*time.Second)
	// It does not know its connection. With this interval it loses no lease on a busy host.
	e := clitest.Lead(t, f.Bucket.KeyValue, "web-1", "jobs", election.WithCampaignInterval(3*time.Second))
	code, _, stderr := f.run("resign", "jobs", "--force")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(MatchRegexp(`If 'election-cli info jobs' shows that it has renewed, it cannot be asked: stop process \d+ on \S+, or run 'election-cli evict jobs'\n$`))
	time.Sleep(waitFor(f, stderr))
	stdout := f.ok(commands(stderr)[0]...)
	f.Expect(stdout).To(MatchRegexp(`Renewed: .*ago`))
	f.Expect(e.IsLeader()).To(BeTrue())
	f.ok("evict", "jobs", "--force")
	f.Eventually(e.IsLeader).Should(BeFalse())
}
