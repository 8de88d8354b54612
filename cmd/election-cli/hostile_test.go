package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/events"
	"github.com/natscampaign/election/internal/look"
)

func TestWhatOthersWroteReachesNoOutputRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	whole := clitest.Leading(clitest.Malice, clitest.Fields{"instance": clitest.Malice, "host": clitest.Malice, "metadata": map[string]string{clitest.Malice: clitest.Malice, "long": strings.Repeat("x", 5_000)}})
	for key, value := range map[string]any{"whole": whole, "bare": clitest.Malice, "bytes": "\xff\xfe\xc3(\x9b31m\xed\xa0\x80", "huge": clitest.Huge, "long": clitest.Leading(clitest.Huge[:10_000], clitest.Fields{"instance": "i", "attempt": "i.1"})} {
		a.Put(key, value)
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
			code, stdout, stderr := try(append(args, "-s", a.Server.URL())...)
			clitest.Harmless(a, stdout, what)
			clitest.Harmless(a, stderr, what)
			a.Expect(len(stdout)+len(stderr)).To(BeNumerically("<", 100_000), what)
			if strings.Contains(what, "--json") && stdout != "" && args[0] != "watch" {
				a.Expect(json.Valid([]byte(stdout))).To(BeTrue(), what)
			}
			if strings.Contains(what, "nagios") {
				a.Expect(strings.Count(stdout, "\n")).To(Equal(1), what)
				a.Expect(strings.Count(stdout, "|")).To(Equal(1), what)
			}
			if strings.Contains(what, "prometheus") {
				clitest.Parse(a, stdout)
			}
			if args[0] != "check" {
				a.Expect(code).To(BeElementOf(cli.ExitOK, cli.ExitNegative, exitTimeout), "%s: %s", what, stderr)
			}
			if !slices.Contains(line, "KEY") {
				break // the key is not in it
			}
		}
	}
	for _, key := range []string{"whole", "bare", "bytes", "huge", "long"} {
		a.Expect(a.Stands(key)).To(BeFalse(), "however it is called, it can be evicted")
	}
}

func TestWhatTheLeaderIsCalledReachesNoEventRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading(clitest.Malice, nil))
	both := []*campaigner{
		startCampaign(t, "-s", a.Server.URL()),
		startCandidate(t, "file", "jobs", filepath.Join(t.TempDir(), "marker"), "--json", "-s", a.Server.URL()),
	}
	for _, c := range both {
		c.next(events.Started)
		var line string
		a.Eventually(c.lines).WithTimeout(clitest.Patience).Should(Receive(&line))
		clitest.Harmless(a, line, "JSON")
		a.Expect(line).To(ContainSubstring(events.Following))
		a.Expect(line).To(ContainSubstring(`web\\x1b[2J`))
	}
}

func TestWhatSomebodyAnswersForTheLeaderReachesNoOutputRaw(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", nil))
	for _, code := range []string{"400", "404", "409", "500"} {
		sub, err := a.S.Conn.Subscribe("election-control.LEADER_ELECTION.*.>", func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {clitest.Malice + clitest.Huge[:10_000]}, micro.ErrorCodeHeader: {code}}})
		})
		a.Expect(err).NotTo(HaveOccurred())
		a.Expect(a.S.Conn.Flush()).To(Succeed())
		for _, args := range [][]string{{"resign", "jobs", "--force"}, {"transfer", "jobs", "--to", "web-2"}, {"candidates", "jobs"}} {
			what := strings.Join(args, " ") + " " + code
			exit, stdout, stderr := try(append(args, "-s", a.Server.URL())...)
			a.Expect(exit).To(BeElementOf(cli.ExitNegative, cli.ExitFailure), what)
			clitest.Harmless(a, stdout+stderr, what)
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
	a.Put(key, clitest.Leading("web-1", nil))
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"info"}, {"watch", "--count", "1"}, {"watch", "--count", "1", "--json"},
		{"check", "--format", "nagios"}, {"check", "--format", "prometheus"}, {"check"}} {
		code, stdout, stderr := a.run(args...)
		a.Expect(code).To(BeElementOf(cli.ExitOK, 1), "%q %s", args, stderr)
		clitest.Harmless(a, stdout+stderr, args[0])
		a.Expect(stdout).To(ContainSubstring("web-1"), "%q", args)
	}
}

func TestTimesThatNobodyLivesInAreShown(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	for key, since := range map[string]string{"early": "0001-01-01T00:00:01Z", "first": "0000-01-01T00:00:00+23:59", "late": "9999-12-31T23:59:59-23:59"} {
		a.Put(key, clitest.Leading("web-1", clitest.Fields{"since": since}))
	}
	var all []look.Holder
	a.read(cli.ExitOK, &all, "ls")
	a.Expect(all).To(HaveLen(3))
	for _, h := range all {
		a.Expect(h.State).To(Equal(look.StateLeader))
		code, _, stderr := a.run("info", h.Key)
		a.Expect(code).To(Equal(cli.ExitOK), stderr)
	}
	code, _, stderr := a.run("watch", "--json", "--count", "3")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
}
