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

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
)

var episodes = flag.Int("episodes", 1, "how many times a link is cut")

// tickerName makes the test binary a program that ignores TERM and writes the machine's monotonic clock to the file that
// the variable names, over and over. A program's life lasts from its first reading to its last.
const tickerName = "ELECTION_TEST_TICKER"

func init() {
	if path := os.Getenv(tickerName); path != "" {
		asProgram = func() { writeClock(path) }
	}
}

// writeClock is that program.
func writeClock(path string) {
	signal.Ignore(unix.SIGTERM)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for {
		if _, err := fmt.Fprintf(f, "%d %d\n", os.Getpid(), history.Now()); err != nil {
			panic(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// lifetime is that of one program.
type lifetime struct {
	pid         int
	first, last time.Duration
}

// lives reads those of all programs that wrote to a file.
func lives(text string) (all []lifetime) {
	for line := range strings.Lines(text) {
		pid, clock, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(pid)
		at, err2 := strconv.ParseInt(clock, 10, 64)
		if err != nil || err2 != nil || !strings.HasSuffix(line, "\n") { // it was killed while it wrote
			continue
		}
		if len(all) == 0 || all[len(all)-1].pid != n {
			all = append(all, lifetime{pid: n, first: time.Duration(at)})
		}
		all[len(all)-1].last = time.Duration(at)
	}
	return all
}

// earliestExpiry returns when the server may expire the key that is held now, by the clock that the programs write. Servers
// are late with it, which would hide that a program was late too.
func (a *runArena) earliestExpiry(ttl time.Duration) time.Duration {
	a.t.Helper()
	entry, err := a.bucket.Get(a.t.Context(), "jobs")
	a.g.Expect(err).NotTo(HaveOccurred())
	return history.Now() + time.Until(entry.Created().Add(ttl))
}

// TestAProgramIsDeadBeforeAnotherStartsWhenItsLinkIsCut has another lead as soon as the server has expired the key: with no
// stand-down, what keeps the programs apart is that the first is dead before its lease is over. It ignores TERM.
func TestAProgramIsDeadBeforeAnotherStartsWhenItsLinkIsCut(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 2*time.Second)
	self, err := os.Executable()
	a.g.Expect(err).NotTo(HaveOccurred())
	var shortest, longest time.Duration
	for i := range *episodes {
		a := &runArena{t: t, g: a.g, url: a.url, bucket: a.bucket, folder: t.TempDir()}
		link, err := processes.OpenLink([]string{strings.TrimPrefix(a.url, "nats://")}, 0, nil)
		a.g.Expect(err).NotTo(HaveOccurred())
		one, two := a.prepareOn(link.URLs()[0], "jobs", "--", self), a.prepare("jobs", "--", self)
		one.cmd.Env = append(os.Environ(), tickerName+"="+a.file("one"))
		two.cmd.Env = append(os.Environ(), tickerName+"="+a.file("two"))
		a.g.Expect(one.cmd.Start()).To(Succeed())
		a.await("one", "\n")
		a.g.Expect(two.cmd.Start()).To(Succeed())
		if i > 0 { // at any time between renewals
			time.Sleep(rand.N(2 * time.Second))
		}
		link.Cut()
		over := a.earliestExpiry(2 * time.Second)
		a.await("two", "\n")
		link.Mend()
		for _, w := range []*wrapper{one, two} {
			w.sends(unix.SIGTERM)
			a.g.Expect(w.code()).To(BeElementOf(137, 143), w.stderr.String())
		}
		link.Close()
		first, second := lives(a.reads("one")()), lives(a.reads("two")())
		a.g.Expect(first).NotTo(BeEmpty())
		a.g.Expect(first[0].last).To(BeNumerically("<", over), "it was dead before the lease was over, episode %d:\n%s", i, one.stderr)
		gap := second[0].first - first[0].last
		a.g.Expect(gap).To(BeNumerically(">", 0), "they ran at the same time, episode %d:\n%s", i, one.stderr)
		if i == 0 || gap < shortest {
			shortest = gap
		}
		longest = max(longest, gap)
	}
	t.Logf("%d times a link was cut; from the end of the program to the start of another: %v to %v", *episodes, shortest, longest)
}

// TestAProgramThatRunsAllTheTimeIsToldOfALossBeforeAnotherLeads compares the order in which two programs, one on a link that
// is cut, write to one file.
func TestAProgramThatRunsAllTheTimeIsToldOfALossBeforeAnotherLeads(t *testing.T) {
	t.Parallel()
	a := newRunArena(t, 5*time.Second, "--interval", "1s")
	link, err := processes.OpenLink([]string{strings.TrimPrefix(a.url, "nats://")}, 0, nil)
	a.g.Expect(err).NotTo(HaveOccurred())
	defer link.Close()
	script := `trap "echo $0 won >>told" USR1; trap "echo $0 lost >>told" USR2; trap 'exit 0' TERM; while :; do sleep 0.02; done`
	one := a.prepareOn(link.URLs()[0], "--on-lost=signal", "jobs", "--", "bash", "-c", script, "one")
	two := a.prepare("--on-lost=signal", "jobs", "--", "bash", "-c", script, "two")
	a.g.Expect(one.cmd.Start()).To(Succeed())
	a.await("told", "one won\n")
	a.g.Expect(two.cmd.Start()).To(Succeed())
	link.Cut()
	a.await("told", "two won\n")
	a.g.Expect(a.reads("told")()).To(MatchRegexp(`^one won\n(one lost\n){1,2}two won\n$`), "on a host that is late by both that watch over it")
	link.Mend()
	for _, w := range []*wrapper{two, one} {
		w.sends(unix.SIGTERM)
		a.g.Expect(w.code()).To(Equal(0), w.stderr.String())
	}
}
