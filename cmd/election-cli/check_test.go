package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/test/clitest"
)

// healthyTTL is a TTL about which admin.Check has no finding.
const healthyTTL = 30 * time.Second

func TestCheckExitsWithThePluginCodeOfItsStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	for _, c := range []struct {
		args  []string
		code  int
		codes []string
		line  string
	}{
		{[]string{"jobs"}, 0, nil, `^ELECTION OK - "web-1" leads "jobs" since \S+ \S+, renewed \S+ ago \| lease_left=\d+\.\d{3}s;4\.500:;0:;0;30\.000 term=7\n$`},
		{[]string{"elect"}, 1, []string{"leader-elect elect"}, `^ELECTION WARNING - "web-2" has won "elect", but .* \| lease_left=\S+ term=0\n$`},
		{[]string{"jobs", "--overdue", "1us"}, 1, []string{"renewal-overdue jobs"}, `^ELECTION WARNING - "web-1" renewed "jobs" `},
		{[]string{"nope"}, 2, []string{"no-leader nope"}, `^ELECTION CRITICAL - nobody leads "nope": no candidate answers\n$`},
		{[]string{"jobs", "nope"}, 2, []string{"no-leader nope"}, `^ELECTION CRITICAL - nobody leads "nope": no candidate answers \| 'jobs lease_left'=\S+ 'jobs term'=7\n$`},
		{[]string{"nope", "--ignore", "no-leader"}, 0, nil, `^ELECTION OK - `},
		{nil, 1, []string{"leader-elect elect"}, `'jobs term'=7\n$`},
	} {
		f.Put("jobs", clitest.LeaderRecord("web-1", nil)) // it may expire on a busy host
		f.Put("elect", clitest.LeaderRecord("web-2", clitest.Record{"term": 0}))
		var raw struct {
			Status   string
			Findings []checkup.ElectionFinding
		}
		code, stdout, stderr := f.run(append([]string{"check", "--format", "nagios"}, c.args...)...)
		f.Expect(code).To(Equal(c.code), "%q %s %s", c.args, stdout, stderr)
		f.Expect(stdout).To(MatchRegexp(c.line), "%q", c.args)
		f.Expect(stderr).To(BeEmpty())
		f.read(c.code, &raw, append([]string{"check"}, c.args...)...)
		var codes []string // of warnings and critical findings
		for _, r := range raw.Findings {
			if r.Severity > admin.SeverityInfo {
				codes = append(codes, strings.TrimSuffix(r.Code+" "+r.Key, " "))
			}
		}
		f.Expect(codes).To(Equal(c.codes), "%q", c.args)
		f.Expect(raw.Status).To(Equal(checkup.Status(c.code).String()))
		code, stdout, _ = f.run(append([]string{"check"}, c.args...)...)
		f.Expect([]any{code, strings.Fields(stdout)[0]}).To(Equal([]any{c.code, checkup.Status(c.code).String()}), "%q", c.args)
	}
}

func TestCheckReportsFindingsAboutTheBucket(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	_, err := f.Client.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: healthyTTL, LimitMarkerTTL: healthyTTL})
	f.Expect(err).NotTo(HaveOccurred())
	code, stdout, _ := f.run("check", "--bucket", "ODD", "--format", "nagios")
	f.Expect(code).To(Equal(2), stdout)
	f.Expect(stdout).To(HavePrefix("ELECTION CRITICAL - "))
	code, stdout, _ = f.run("check", "--bucket", "ODD", "--ignore", "history", "--ignore", "options-unfit", "--format", "nagios")
	f.Expect(code).To(Equal(1), stdout)
	f.Expect(stdout).To(ContainSubstring("republish"))
	code, stdout, _ = f.run("check", "--format", "nagios")
	f.Expect([]any{code, stdout}).To(Equal([]any{0, "ELECTION OK - bucket \"LEADER_ELECTION\" is fit for elections; no election has a leader\n"}))
}

func TestAFailedCheckIsUnknownInEveryFormat(t *testing.T) {
	g := NewWithT(t)
	for format, text := range map[string]string{
		checkup.FormatText:       "",
		checkup.FormatNagios:     "ELECTION UNKNOWN - cannot connect to nats://127.0.0.1:1: ",
		checkup.FormatJSON:       `"status": "UNKNOWN"`,
		checkup.FormatPrometheus: `election_check_status{bucket="LEADER_ELECTION"} 3`,
	} {
		code, stdout, stderr := runInProcess("check", "jobs", "-s", "nats://127.0.0.1:1", "--format", format)
		g.Expect(code).To(Equal(3), format)
		g.Expect(stdout).To(ContainSubstring(text), format)
		if format != checkup.FormatNagios {
			g.Expect(stderr).To(ContainSubstring("cannot connect"), format)
		}
	}
}

func TestCheckWaitsForALeaderForTheGracePeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	reads, err := f.Client.Conn.SubscribeSync("$JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.Client.Conn.Flush()).To(Succeed())
	cmd, stdout, _ := f.command("check", "jobs", "--grace", "1m", "--format", "nagios")
	f.Expect(cmd.Start()).To(Succeed())
	for range 2 { // the command has found no leader, and reads the key again
		_, err := reads.NextMsg(clitest.Timeout)
		f.Expect(err).NotTo(HaveOccurred())
	}
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Expect(cmd.Wait()).To(Succeed())
	f.Expect(stdout.String()).To(HavePrefix(`ELECTION OK - "web-1" leads "jobs"`))

	code, _, _ := f.run("check", "nope", "--grace", "400ms")
	f.Expect(code).To(Equal(2))
}

func TestMetricsOfACheckAreWellFormedAndComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t, healthyTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	code, stdout, stderr := f.run("check", "jobs", "nope", "--format", "prometheus")
	f.Expect(code).To(Equal(2), stderr)
	families := clitest.ParseMetrics(f, stdout)
	f.Expect(families).To(HaveLen(7))
	for name, found := range families {
		f.Expect(name).To(HavePrefix("election_check_"))
		f.Expect(found.GetHelp()).NotTo(BeEmpty())
		f.Expect(found.GetType()).To(Equal(dto.MetricType_GAUGE))
	}
	f.Expect(clitest.MetricValue(families, "election_check_status", "")).To(Equal(2.0))
	f.Expect(clitest.MetricValue(families, "election_check_term", "jobs")).To(Equal(7.0))
	f.Expect(clitest.MetricValue(families, "election_check_leader", "jobs")).To(Equal(1.0))
	f.Expect(clitest.MetricValue(families, "election_check_lease_remaining_seconds", "jobs")).To(BeNumerically(">", 5))
	f.Expect(clitest.MetricValue(families, "election_check_lease_remaining_seconds", "nope")).To(Equal(0.0))
	f.Expect(clitest.MetricValue(families, "election_check_finding", "nope")).To(Equal(1.0))
}

func TestWrongUsageOfACheckForNagiosIsUnknownOnStdout(t *testing.T) {
	g := NewWithT(t)
	code, stdout, stderr := runInProcess("check", "--format", "nagios", "--bogus")
	g.Expect(code).To(Equal(3))
	g.Expect(stdout).To(MatchRegexp(`^ELECTION UNKNOWN - .*bogus.*\n$`))
	g.Expect(stderr).To(ContainSubstring("bogus"))
}

func TestEveryCodeThatIsDocumentedCanBeIgnoredAndNoOther(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("../../admin/check.go")
	g.Expect(err).NotTo(HaveOccurred())
	_, table, _ := strings.Cut(string(source), "// Finding is one result of [Check].")
	table, _, _ = strings.Cut(table, "type Finding struct")
	_, own, _ := strings.Cut(checkup.Help, "those of the Go package admin, and\n")
	own, _, _ = strings.Cut(own, "The codes that begin with expect-")
	var documented []string
	for line := range strings.Lines(strings.ReplaceAll(table, "//\t", "    ") + own) {
		if codes := regexp.MustCompile(`^ {4}([a-z, -]+?) +(critical|warning|info)`).FindStringSubmatch(line); codes != nil {
			documented = append(documented, strings.Split(codes[1], ", ")...)
		}
	}
	g.Expect(findingCodes).To(ConsistOf(documented))
}
