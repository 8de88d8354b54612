package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestUntrustedRecordsArePrintableInAllOutput(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	whole := clitest.LeaderRecord(clitest.HostileText, clitest.Record{"instance": clitest.HostileText, "host": clitest.HostileText, "metadata": map[string]string{clitest.HostileText: clitest.HostileText, "long": strings.Repeat("x", 5_000)}})
	records := map[string]any{"whole": whole, "bare": clitest.HostileText, "bytes": "\xff\xfe\xc3(\x9b31m\xed\xa0\x80", "huge": clitest.HugeText, "long": clitest.LeaderRecord(clitest.HugeText[:10_000], clitest.Record{"instance": "i", "attempt": "i.1"})}
	for _, line := range [][]string{
		{"ls"}, {"ls", "--json"}, {"info"}, {"info", "--json"}, {"info", "KEY"}, {"info", "KEY", "--json"},
		{"watch", "--count", "5"}, {"watch", "--count", "5", "--json"}, {"wait", "KEY", "--max-wait", "200ms"}, {"wait", "KEY", "--max-wait", "200ms", "--json"},
		{"check"}, {"check", "--json"}, {"check", "--format", "nagios"}, {"check", "--format", "prometheus"}, {"check", "KEY", "--format", "nagios"},
		{"evict", "KEY", "--revision", "999999"}, {"evict", "KEY", "--force"},
	} {
		for key, value := range records { // which may expire on a busy host
			f.Put(key, value)
		}
		for _, key := range []string{"whole", "bare", "bytes", "huge", "long"} {
			args := strings.Split(strings.ReplaceAll(strings.Join(line, "\x00"), "KEY", key), "\x00")
			what := strings.Join(args, " ")
			code, stdout, stderr := runInProcess(append(args, "-s", f.Server.URL())...)
			clitest.ExpectPrintable(f, stdout, what)
			clitest.ExpectPrintable(f, stderr, what)
			f.Expect(len(stdout)+len(stderr)).To(BeNumerically("<", 100_000), what)
			expectOutput(f, args, stdout)
			if strings.Contains(what, "nagios") {
				f.Expect(strings.Count(stdout, "\n")).To(Equal(1), what)
				f.Expect(strings.Count(stdout, "|")).To(Equal(1), what)
			}
			if strings.Contains(what, "prometheus") {
				clitest.ParseMetrics(f, stdout)
			}
			if args[0] != "check" && args[0] != "wait" { // check judges, and a busy host may not answer wait in time
				f.Expect(code).To(BeElementOf(cli.ExitOK, cli.ExitNegative, supervise.ExitTimedOut), "%s: %s", what, stderr)
			}
			if !slices.Contains(line, "KEY") {
				break // the command line has no key
			}
		}
	}
	for _, key := range []string{"whole", "bare", "bytes", "huge", "long"} {
		f.Expect(f.HasRecord(key)).To(BeFalse(), "a leader with a hostile name can be evicted")
	}
}

func TestTheNameOfTheLeaderIsPrintableInEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord(clitest.HostileText, nil))
	both := []*process{
		startCampaign(t, "-s", f.Server.URL()),
		startCandidate(t, "file", "jobs", filepath.Join(t.TempDir(), "marker"), "--json", "-s", f.Server.URL()),
	}
	for _, c := range both {
		c.next(events.Started)
		var line string
		f.Eventually(c.lines).Should(Receive(&line))
		clitest.ExpectPrintable(f, line, "JSON")
		f.Expect(line).To(ContainSubstring(events.Following))
		f.Expect(line).To(ContainSubstring(`web\\x1b[2J`))
	}
}

func TestUntrustedAnswersOfTheLeaderArePrintable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	for _, code := range []string{"400", "404", "409", "500"} {
		sub, err := f.Client.Conn.Subscribe("election-control.LEADER_ELECTION.*.>", func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorHeader: {clitest.HostileText + clitest.HugeText[:10_000]}, micro.ErrorCodeHeader: {code}}})
		})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.Client.Conn.Flush()).To(Succeed())
		for _, args := range [][]string{{"resign", "jobs", "--force"}, {"transfer", "jobs", "--to", "web-2"}, {"candidates", "jobs"}} {
			what := strings.Join(args, " ") + " " + code
			exit, stdout, stderr := runInProcess(append(args, "-s", f.Server.URL())...)
			f.Expect(exit).To(BeElementOf(cli.ExitNegative, cli.ExitFailure), what)
			clitest.ExpectPrintable(f, stdout+stderr, what)
			f.Expect(len(stdout)+len(stderr)).To(BeNumerically("<", 10_000), what)
			if args[0] != "candidates" {
				f.Expect(stderr).To(ContainSubstring(`web\x1b[2J`), what)
			}
		}
		f.Expect(sub.Unsubscribe()).To(Succeed())
	}
}

func TestUntrustedKeysArePrintable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	key := "a\x1b[2J\u202eb|='c"
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"info"}, {"watch", "--count", "1"}, {"watch", "--count", "1", "--json"},
		{"check", "--format", "nagios"}, {"check", "--format", "prometheus"}, {"check"}} {
		f.Put(key, clitest.LeaderRecord("web-1", nil)) // it may expire on a busy host
		code, stdout, stderr := f.run(args...)
		f.Expect(code).To(BeElementOf(cli.ExitOK, 1), "%q %s", args, stderr)
		clitest.ExpectPrintable(f, stdout+stderr, args[0])
		f.Expect(stdout).To(ContainSubstring("web-1"), "%q", args)
	}
}

func TestTimesFarInThePastOrFutureAreAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for key, since := range map[string]string{"early": "0001-01-01T00:00:01Z", "first": "0000-01-01T00:00:00+23:59", "late": "9999-12-31T23:59:59-23:59"} {
		f.Put(key, clitest.LeaderRecord("web-1", clitest.Record{"since": since}))
	}
	var all []look.Holder
	f.read(cli.ExitOK, &all, "ls")
	f.Expect(all).To(HaveLen(3))
	for _, h := range all {
		f.Expect(h.State).To(Equal(look.StateLeader))
		f.ok("info", h.Key)
	}
	f.ok("watch", "--json", "--count", "3")
}
