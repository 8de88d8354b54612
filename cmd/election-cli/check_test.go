package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/checkup"
	"github.com/natscampaign/election/internal/clitest"
)

// monitored is a TTL that Check has nothing to say about.
const monitored = 30 * time.Second

func TestCheckExitsAsPluginsDo(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	a.Put("jobs", clitest.Leading("web-1", nil))
	a.Put("elect", clitest.Leading("web-2", clitest.Fields{"term": 0}))
	for _, c := range []struct {
		args  []string
		code  int
		codes []string
		line  string
	}{
		{[]string{"jobs"}, 0, nil, `^ELECTION OK - web-1 leads jobs since \S+ \S+, renewed \S+ ago \| lease_left=\d+\.\d{3}s;4\.500:;0:;0;30\.000 term=7\n$`},
		{[]string{"elect"}, 1, []string{"leader-elect elect"}, `^ELECTION WARNING - web-2 has won elect, but .* \| lease_left=\S+ term=0\n$`},
		{[]string{"jobs", "--overdue", "1us"}, 1, []string{"renewal-overdue jobs"}, `^ELECTION WARNING - web-1 renewed jobs `},
		{[]string{"nope"}, 2, []string{"no-leader nope"}, `^ELECTION CRITICAL - nobody leads nope\n$`},
		{[]string{"jobs", "nope"}, 2, []string{"no-leader nope"}, `^ELECTION CRITICAL - nobody leads nope \| 'jobs lease_left'=\S+ 'jobs term'=7\n$`},
		{[]string{"nope", "--ignore", "no-leader"}, 0, nil, `^ELECTION OK - `},
		{nil, 1, []string{"leader-elect elect"}, `'jobs term'=7\n$`},
	} {
		var raw struct {
			Status   string
			Findings []checkup.Remark
		}
		code, stdout, stderr := a.run(append([]string{"check", "--format", "nagios"}, c.args...)...)
		a.Expect(code).To(Equal(c.code), "%q %s %s", c.args, stdout, stderr)
		a.Expect(stdout).To(MatchRegexp(c.line), "%q", c.args)
		a.Expect(stderr).To(BeEmpty())
		a.read(c.code, &raw, append([]string{"check"}, c.args...)...)
		var codes []string // of what is wrong
		for _, r := range raw.Findings {
			if r.Severity > admin.SeverityInfo {
				codes = append(codes, strings.TrimSuffix(r.Code+" "+r.Key, " "))
			}
		}
		a.Expect(codes).To(Equal(c.codes), "%q", c.args)
		a.Expect(raw.Status).To(Equal(checkup.Grade(c.code).String()))
		code, stdout, _ = a.run(append([]string{"check"}, c.args...)...)
		a.Expect([]any{code, strings.Fields(stdout)[0]}).To(Equal([]any{c.code, checkup.Grade(c.code).String()}), "%q", c.args)
	}
}

func TestCheckJudgesTheBucketToo(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	_, err := a.S.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: monitored, LimitMarkerTTL: monitored})
	a.Expect(err).NotTo(HaveOccurred())
	code, stdout, _ := a.run("check", "--bucket", "ODD", "--format", "nagios")
	a.Expect(code).To(Equal(2), stdout)
	a.Expect(stdout).To(HavePrefix("ELECTION CRITICAL - "))
	code, stdout, _ = a.run("check", "--bucket", "ODD", "--ignore", "history", "--ignore", "options-unfit", "--format", "nagios")
	a.Expect(code).To(Equal(1), stdout)
	a.Expect(stdout).To(ContainSubstring("republish"))
	code, stdout, _ = a.run("check", "--format", "nagios")
	a.Expect([]any{code, stdout}).To(Equal([]any{0, "ELECTION OK - bucket LEADER_ELECTION is fit for elections; nobody leads in any\n"}))
}

func TestCheckThatFindsOutNothingIsUnknownInEveryFormat(t *testing.T) {
	g := NewWithT(t)
	for format, says := range map[string]string{
		checkup.FormatText:       "",
		checkup.FormatNagios:     "ELECTION UNKNOWN - cannot connect to nats://127.0.0.1:1: ",
		checkup.FormatJSON:       `"status": "UNKNOWN"`,
		checkup.FormatPrometheus: `election_check_status{bucket="LEADER_ELECTION"} 3`,
	} {
		code, stdout, stderr := try("check", "jobs", "-s", "nats://127.0.0.1:1", "--format", format)
		g.Expect(code).To(Equal(3), format)
		g.Expect(stdout).To(ContainSubstring(says), format)
		if format != checkup.FormatNagios {
			g.Expect(stderr).To(ContainSubstring("cannot connect"), format)
		}
	}
	for _, args := range [][]string{{"--bogus"}, {"--format", "yaml"}, {"a b"}, {"--json", "--format", "nagios"}, {"--grace=-1s"}, {"k", "--overdue", "0s"}} {
		code, _, stderr := try(append([]string{"check"}, args...)...)
		g.Expect(code).To(Equal(3), "%q %s", args, stderr)
	}
}

func TestCheckGivesALeaderTheGraceToAppear(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	reads, err := a.S.Conn.SubscribeSync("$JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs")
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(a.S.Conn.Flush()).To(Succeed())
	cmd, stdout, _ := a.command("check", "jobs", "--grace", "1m", "--format", "nagios")
	a.Expect(cmd.Start()).To(Succeed())
	for range 2 { // by then it has found nobody, and looked again
		_, err := reads.NextMsg(clitest.Patience)
		a.Expect(err).NotTo(HaveOccurred())
	}
	a.Put("jobs", clitest.Leading("web-1", nil))
	a.Expect(cmd.Wait()).To(Succeed())
	a.Expect(stdout.String()).To(HavePrefix("ELECTION OK - web-1 leads jobs"))

	code, _, _ := a.run("check", "nope", "--grace", "400ms")
	a.Expect(code).To(Equal(2))
}

func TestWhatPrometheusReadsIsWellFormedAndComplete(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	a.Put("jobs", clitest.Leading("web-1", nil))
	code, stdout, stderr := a.run("check", "jobs", "nope", "--format", "prometheus")
	a.Expect(code).To(Equal(2), stderr)
	families := clitest.Parse(a, stdout)
	a.Expect(families).To(HaveLen(7))
	for name, f := range families {
		a.Expect(name).To(HavePrefix("election_check_"))
		a.Expect(f.GetHelp()).NotTo(BeEmpty())
		a.Expect(f.GetType()).To(Equal(dto.MetricType_GAUGE))
	}
	a.Expect(clitest.ValueOf(families, "election_check_status", "")).To(Equal(2.0))
	a.Expect(clitest.ValueOf(families, "election_check_term", "jobs")).To(Equal(7.0))
	a.Expect(clitest.ValueOf(families, "election_check_leader", "jobs")).To(Equal(1.0))
	a.Expect(clitest.ValueOf(families, "election_check_lease_remaining_seconds", "jobs")).To(BeNumerically(">", 5))
	a.Expect(clitest.ValueOf(families, "election_check_lease_remaining_seconds", "nope")).To(Equal(0.0))
	a.Expect(clitest.ValueOf(families, "election_check_finding", "nope")).To(Equal(1.0))
}
