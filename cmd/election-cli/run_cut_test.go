//go:build linux || darwin

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
)

var episodes = flag.Int("episodes", 1, "how many times TestAProgramIsDeadBeforeAnotherStartsWhenItsLinkIsCut cuts the link")

// clockWriterVariable names a file. If it is set, the test binary becomes a program that ignores TERM and keeps writing the machine's
// monotonic clock to that file. The first and the last reading show how long the program lived.
const clockWriterVariable = "ELECTION_TEST_TICKER"

func init() {
	if path := os.Getenv(clockWriterVariable); path != "" {
		asProgram = func() { writeClock(path) }
	}
}

// writeClock is the program that clockWriterVariable selects.
func writeClock(path string) {
	signal.Ignore(unix.SIGTERM)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for {
		if _, err := fmt.Fprintf(f, "%d %d\n", os.Getpid(), host.Clock()); err != nil {
			panic(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// lifetime is the time of a program's first and last reading of the clock.
type lifetime struct {
	pid         int
	first, last time.Duration
}

// parseLifetimes returns the lifetimes of all programs that wrote to a file.
func parseLifetimes(text string) (all []lifetime) {
	for line := range strings.Lines(text) {
		pid, clock, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(pid)
		at, err2 := strconv.ParseInt(clock, 10, 64)
		if err != nil || err2 != nil || !strings.HasSuffix(line, "\n") { // the program was killed while it wrote this line
			continue
		}
		if len(all) == 0 || all[len(all)-1].pid != n {
			all = append(all, lifetime{pid: n, first: time.Duration(at)})
		}
		all[len(all)-1].last = time.Duration(at)
	}
	return all
}

// earliestExpiry returns the earliest moment at which the server may expire the key, by the clock that the programs write. Servers
// expire keys late, so the start of the next program would not show that the first program was late.
func (f *runFixture) earliestExpiry(ttl time.Duration) time.Duration {
	f.T.Helper()
	entry, err := f.Bucket.Get(f.T.Context(), "jobs")
	f.Expect(err).NotTo(HaveOccurred())
	return host.Clock() + time.Until(entry.Created().Add(ttl))
}

// TestAProgramIsDeadBeforeAnotherStartsWhenItsLinkIsCut uses no stand-down, so that the second host leads as soon as the server has
// expired the key. The programs cannot overlap only because the first is dead before its lease ends, although it ignores TERM. The stop
// timeout, which is over at the end of each episode, is longer than the time from TERM to the end of a lease.
func TestAProgramIsDeadBeforeAnotherStartsWhenItsLinkIsCut(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	const ttl = 10 * time.Second
	f := newRunFixture(t, ttl, "--stop-timeout", "3s")
	self, err := os.Executable()
	f.Expect(err).NotTo(HaveOccurred())
	var shortest, longest time.Duration
	for i := range *episodes {
		f := f.again()
		link, url := linkTo(f.T, f.url)
		one, two := f.prepareWithServer(url, "jobs", "--", self), f.prepare("jobs", "--", self)
		one.cmd.Env = append(os.Environ(), clockWriterVariable+"="+f.file("one"))
		two.cmd.Env = append(os.Environ(), clockWriterVariable+"="+f.file("two"))
		f.Expect(one.cmd.Start()).To(Succeed())
		f.awaitText("one", "\n")
		f.Expect(two.cmd.Start()).To(Succeed())
		if i > 0 { // cut the link at a random time between two renewals
			time.Sleep(rand.N(ttl / 4))
		}
		link.Cut()
		expiry := f.earliestExpiry(ttl)
		f.awaitText("two", "\n")
		link.Heal()
		for _, w := range []*invocation{one, two} {
			w.signal(unix.SIGTERM)
			f.Expect(w.exitCode()).To(BeElementOf(137, 143), w.stderr.String())
		}
		link.Close()
		first, second := parseLifetimes(f.content("one")()), parseLifetimes(f.content("two")())
		f.Expect(first).NotTo(BeEmpty())
		f.Expect(first[0].last).To(BeNumerically("<", expiry), "the program outlived its lease, episode %d:\n%s", i, one.stderr)
		gap := second[0].first - first[0].last
		f.Expect(gap).To(BeNumerically(">", 0), "both programs ran at the same time, episode %d:\n%s", i, one.stderr)
		if i == 0 || gap < shortest {
			shortest = gap
		}
		longest = max(longest, gap)
	}
	t.Logf("the link was cut %d times; from the end of a program to the start of the next: %v to %v", *episodes, shortest, longest)
}

// TestProgramInSignalModeIsNotifiedOfALossBeforeAnotherLeads has two programs write their notifications to one file, and cuts the link
// of the first.
func TestProgramInSignalModeIsNotifiedOfALossBeforeAnotherLeads(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	f := newRunFixture(t, 10*time.Second, "--interval", "1s")
	link, url := linkTo(f.T, f.url)
	script := `trap "echo $0 won >>notified" USR1; trap "echo $0 lost >>notified" USR2; trap 'exit 0' TERM; while :; do sleep 0.02; done`
	one := f.prepareWithServer(url, "--on-lost=signal", "jobs", "--", "bash", "-c", script, "one")
	two := f.prepare("--on-lost=signal", "jobs", "--", "bash", "-c", script, "two")
	f.Expect(one.cmd.Start()).To(Succeed())
	f.awaitText("notified", "one won\n")
	f.Expect(two.cmd.Start()).To(Succeed())
	link.Cut()
	f.awaitText("notified", "two won\n")
	f.Expect(f.content("notified")()).To(MatchRegexp(`^one won\n(one lost\n){1,2}two won\n$`), "run and its guardian may both send the signal")
	link.Heal()
	for _, w := range []*invocation{two, one} {
		w.terminate(0)
	}
}
