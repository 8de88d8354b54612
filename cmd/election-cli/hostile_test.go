package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"
)

// malice is text as somebody might write it who wants to deceive the reader of a terminal.
const malice = "web\x1b[2J\x1b]0;owned\a\r\nroot leads\t\u009b31m\u202egnp\u2066\u200b\x00|'\"<b>"

// huge is almost as long as servers take it.
var huge = strings.Repeat("A\x1b[5m", 200_000)

// harmless expects text to show nothing but what the command itself means to show.
func harmless(g Gomega, text, what string) {
	g.Expect(utf8.ValidString(text)).To(BeTrue(), what)
	for _, r := range text {
		g.Expect(visible(r) || r == '\n' || r == '\t').To(BeTrue(), "%s shows %q", what, r)
	}
	g.Expect(text).NotTo(ContainSubstring("\nroot"), what)
}

func TestWhatOthersWroteReachesNoOutputRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	whole := leading(malice, fields{"instance": malice, "host": malice, "metadata": map[string]string{malice: malice, "long": strings.Repeat("x", 5_000)}})
	for key, value := range map[string]any{"whole": whole, "bare": malice, "bytes": "\xff\xfe\xc3(\x9b31m\xed\xa0\x80", "huge": huge, "long": leading(huge[:10_000], fields{"instance": "i", "attempt": "i.1"})} {
		a.put(key, value)
	}
	for _, line := range [][]string{
		{"ls"}, {"ls", "--json"}, {"info"}, {"info", "--json"}, {"info", "KEY"}, {"info", "KEY", "--json"},
		{"watch", "--count", "5"}, {"watch", "--count", "5", "--json"}, {"wait", "KEY", "--max-wait", "200ms"}, {"wait", "KEY", "--max-wait", "200ms", "--json"},
		{"check"}, {"check", "--json"}, {"check", "--format", "nagios"}, {"check", "--format", "prometheus"}, {"check", "KEY", "--format", "nagios"},
		{"evict", "KEY", "--revision", "999999"}, {"evict", "KEY", "--force"},
	} {
		for _, key := range []string{"whole", "bare", "bytes", "huge", "long"} {
			args := strings.Split(strings.ReplaceAll(strings.Join(line, "\x00"), "KEY", key), "\x00")
			what := strings.Join(args, " ")
			code, stdout, stderr := try(append(args, "-s", a.server.url())...)
			harmless(a, stdout, what)
			harmless(a, stderr, what)
			a.Expect(len(stdout)+len(stderr)).To(BeNumerically("<", 100_000), what)
			if strings.Contains(what, "--json") && stdout != "" && args[0] != "watch" {
				a.Expect(json.Valid([]byte(stdout))).To(BeTrue(), what)
			}
			if strings.Contains(what, "nagios") {
				a.Expect(strings.Count(stdout, "\n")).To(Equal(1), what)
				a.Expect(strings.Count(stdout, "|")).To(Equal(1), what)
			}
			if strings.Contains(what, "prometheus") {
				parse(a, stdout)
			}
			if args[0] != "check" {
				a.Expect(code).To(BeElementOf(exitOK, exitNegative, exitTimeout), "%s: %s", what, stderr)
			}
			if !slices.Contains(line, "KEY") {
				break // the key is not in it
			}
		}
	}
	for _, key := range []string{"whole", "bare", "bytes", "huge", "long"} {
		a.Expect(a.stands(key)).To(BeFalse(), "however it is called, it can be evicted")
	}
}

func TestWhatTheLeaderIsCalledReachesNoEventRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading(malice, nil))
	both := []*campaigner{
		startCampaign(t, "-s", a.server.url()),
		startCandidate(t, "file", "jobs", filepath.Join(t.TempDir(), "marker"), "--json", "-s", a.server.url()),
	}
	for _, c := range both {
		c.next(eventStarted)
		var line string
		a.Eventually(c.lines).WithTimeout(patience).Should(Receive(&line))
		harmless(a, line, "JSON")
		a.Expect(line).To(ContainSubstring(eventFollowing))
		a.Expect(line).To(ContainSubstring(`web\\x1b[2J`))
	}
}

func TestWhatSomebodyAnswersForTheLeaderReachesNoOutputRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading("web-1", nil))
	for _, code := range []string{"400", "404", "409", "500"} {
		sub, err := a.s.nc.Subscribe("election-control.LEADER_ELECTION.*.>", func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {malice + huge[:10_000]}, micro.ErrorCodeHeader: {code}}})
		})
		a.Expect(err).NotTo(HaveOccurred())
		a.Expect(a.s.nc.Flush()).To(Succeed())
		for _, args := range [][]string{{"resign", "jobs", "--force"}, {"transfer", "jobs", "--to", "web-2"}, {"candidates", "jobs"}} {
			what := strings.Join(args, " ") + " " + code
			exit, stdout, stderr := try(append(args, "-s", a.server.url())...)
			a.Expect(exit).To(BeElementOf(exitNegative, exitError), what)
			harmless(a, stdout+stderr, what)
			a.Expect(len(stdout)+len(stderr)).To(BeNumerically("<", 10_000), what)
			if args[0] != "candidates" {
				a.Expect(stderr).To(ContainSubstring(`web\x1b[2J`), what)
			}
		}
		a.Expect(sub.Unsubscribe()).To(Succeed())
	}
}

func TestKeysThatNoClientWouldWriteAreShownHarmlessly(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	key := "a\x1b[2J\u202eb|='c"
	a.put(key, leading("web-1", nil))
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"info"}, {"watch", "--count", "1"}, {"watch", "--count", "1", "--json"},
		{"check", "--format", "nagios"}, {"check", "--format", "prometheus"}, {"check"}} {
		code, stdout, stderr := a.run(args...)
		a.Expect(code).To(BeElementOf(exitOK, 1), "%q %s", args, stderr)
		harmless(a, stdout+stderr, args[0])
		a.Expect(stdout).To(ContainSubstring("web-1"), "%q", args)
	}
}

func TestTimesThatNobodyLivesInAreShown(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	for key, since := range map[string]string{"early": "0001-01-01T00:00:01Z", "first": "0000-01-01T00:00:00+23:59", "late": "9999-12-31T23:59:59-23:59"} {
		a.put(key, leading("web-1", fields{"since": since}))
	}
	var all []holder
	a.read(exitOK, &all, "ls")
	a.Expect(all).To(HaveLen(3))
	for _, h := range all {
		a.Expect(h.State).To(Equal(standingLeader))
		code, _, stderr := a.run("info", h.Key)
		a.Expect(code).To(Equal(exitOK), stderr)
	}
	code, _, stderr := a.run("watch", "--json", "--count", "3")
	a.Expect(code).To(Equal(exitOK), stderr)
}
