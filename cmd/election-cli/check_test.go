package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
)

// monitored is a TTL that Check has nothing to say about.
const monitored = 30 * time.Second

// codesOf returns the codes of what is wrong.
func codesOf(all []remark) []string {
	var codes []string
	for _, r := range all {
		if r.Severity > admin.SeverityInfo {
			codes = append(codes, strings.TrimSuffix(r.Code+" "+r.Key, " "))
		}
	}
	return codes
}

func TestCheckExitsAsPluginsDo(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	a.put("jobs", leading("web-1", nil))
	a.put("elect", leading("web-2", fields{"term": 0}))
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
			Findings []remark
		}
		code, stdout, stderr := a.run(append([]string{"check", "--format", "nagios"}, c.args...)...)
		a.Expect(code).To(Equal(c.code), "%q %s %s", c.args, stdout, stderr)
		a.Expect(stdout).To(MatchRegexp(c.line), "%q", c.args)
		a.Expect(stderr).To(BeEmpty())
		a.read(c.code, &raw, append([]string{"check"}, c.args...)...)
		a.Expect(codesOf(raw.Findings)).To(Equal(c.codes), "%q", c.args)
		a.Expect(raw.Status).To(Equal(grade(c.code).String()))
		code, stdout, _ = a.run(append([]string{"check"}, c.args...)...)
		a.Expect([]any{code, strings.Fields(stdout)[0]}).To(Equal([]any{c.code, grade(c.code).String()}), "%q", c.args)
	}
}

func TestCheckJudgesTheBucketToo(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	_, err := a.s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: monitored, LimitMarkerTTL: monitored})
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
		formatText:       "",
		formatNagios:     "ELECTION UNKNOWN - cannot connect to nats://127.0.0.1:1: ",
		formatJSON:       `"status": "UNKNOWN"`,
		formatPrometheus: `election_check_status{bucket="LEADER_ELECTION"} 3`,
	} {
		code, stdout, stderr := try("check", "jobs", "-s", "nats://127.0.0.1:1", "--format", format)
		g.Expect(code).To(Equal(3), format)
		g.Expect(stdout).To(ContainSubstring(says), format)
		if format != formatNagios {
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
	reads, err := a.s.nc.SubscribeSync("$JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs")
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(a.s.nc.Flush()).To(Succeed())
	cmd, stdout, _ := a.command("check", "jobs", "--grace", "1m", "--format", "nagios")
	a.Expect(cmd.Start()).To(Succeed())
	for range 2 { // by then it has found nobody, and looked again
		_, err := reads.NextMsg(patience)
		a.Expect(err).NotTo(HaveOccurred())
	}
	a.put("jobs", leading("web-1", nil))
	a.Expect(cmd.Wait()).To(Succeed())
	a.Expect(stdout.String()).To(HavePrefix("ELECTION OK - web-1 leads jobs"))

	code, _, _ := a.run("check", "nope", "--grace", "400ms")
	a.Expect(code).To(Equal(2))
}

func TestWhatPrometheusReadsIsWellFormedAndComplete(t *testing.T) {
	t.Parallel()
	a := newArena(t, monitored)
	a.put("jobs", leading("web-1", nil))
	code, stdout, stderr := a.run("check", "jobs", "nope", "--format", "prometheus")
	a.Expect(code).To(Equal(2), stderr)
	families := parse(a, stdout)
	a.Expect(families).To(HaveLen(7))
	for name, f := range families {
		a.Expect(name).To(HavePrefix("election_check_"))
		a.Expect(f.GetHelp()).NotTo(BeEmpty())
		a.Expect(f.GetType()).To(Equal(dto.MetricType_GAUGE))
	}
	a.Expect(valueOf(families, "election_check_status", "")).To(Equal(2.0))
	a.Expect(valueOf(families, "election_check_term", "jobs")).To(Equal(7.0))
	a.Expect(valueOf(families, "election_check_leader", "jobs")).To(Equal(1.0))
	a.Expect(valueOf(families, "election_check_lease_remaining_seconds", "jobs")).To(BeNumerically(">", 5))
	a.Expect(valueOf(families, "election_check_lease_remaining_seconds", "nope")).To(Equal(0.0))
	a.Expect(valueOf(families, "election_check_finding", "nope")).To(Equal(1.0))
}

func parse(g Gomega, text string) map[string]*dto.MetricFamily {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	g.Expect(err).NotTo(HaveOccurred(), text)
	return families
}

// valueOf returns the value of a metric about the election; -1 if there is none.
func valueOf(families map[string]*dto.MetricFamily, name, key string) float64 {
	for _, m := range families[name].GetMetric() {
		is := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == "election" {
				is = l.GetValue()
			}
		}
		if is == key {
			return m.GetGauge().GetValue()
		}
	}
	return -1
}

func TestALeaderIsJudgedByTheAgeOfItsRecord(t *testing.T) {
	g := NewWithT(t)
	const ttl, overdue = 20 * time.Second, 17 * time.Second
	for _, c := range []struct {
		age   time.Duration
		state string
		want  []string
	}{
		{0, standingLeader, nil},
		{15*time.Second + 100*time.Millisecond, standingLeader, nil},
		{17 * time.Second, standingLeader, nil},
		{17*time.Second + 1, standingLeader, []string{"renewal-overdue k"}},
		{20*time.Second - 1, standingLeader, []string{"renewal-overdue k"}},
		{20 * time.Second, standingLeader, []string{"lease-over k"}},
		{21 * time.Second, standingLeaderElect, []string{"lease-over k"}},
		{time.Second, standingLeaderElect, []string{"leader-elect k"}},
		{18 * time.Second, standingLeaderElect, []string{"leader-elect k", "renewal-overdue k"}},
		{time.Second, standingPlain, nil},
		{18 * time.Second, standingPlain, []string{"renewal-overdue k"}},
	} {
		h := &holder{Leader: election.Leader{Key: "k", Name: "a"}, State: c.state, age: c.age, left: ttl - c.age}
		g.Expect(codesOf(judge("k", h, ttl, overdue))).To(Equal(c.want), "%v", c)
	}
	g.Expect(codesOf(judge("k", nil, ttl, overdue))).To(Equal([]string{"no-leader k"}))
}

func TestTwoWhoClaimToLeadAreCriticalAndOneThatAnswersTwiceIsNot(t *testing.T) {
	g := NewWithT(t)
	one, two := claim{"jobs", "web-1", "i1", "h1"}, claim{"jobs", "web-2", "i2", ""}
	g.Expect(judgeClaims(nil)).To(BeEmpty())
	g.Expect(judgeClaims([]claim{one, one, {"other", "web-2", "i2", "h2"}})).To(BeEmpty())
	found := judgeClaims([]claim{one, two, one})
	g.Expect(codesOf(found)).To(Equal([]string{"two-leaders jobs"}))
	g.Expect(found[0].Severity).To(Equal(admin.SeverityCritical))
	g.Expect(found[0].Message).To(Equal("2 candidates claim to lead jobs: web-1 on h1; web-2 on an unknown host"))
}

func TestAWrongClockOfThisHostIsSaidAndRaisesNoAlarm(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	a := &assessment{Findings: judgeClock(readServerTime(now.Add(time.Hour), now, now))}
	g.Expect(a.Findings).To(HaveLen(1))
	g.Expect(a.Findings[0].Message).To(Equal("this host's clock is 1h0m0s behind the server's"))
	a.settle(nil)
	g.Expect(a.Status).To(Equal(gradeOK))
	g.Expect(judgeClock(readServerTime(now.Add(900*time.Millisecond), now, now))).To(BeEmpty())
}

func TestTheWorstFindingDecides(t *testing.T) {
	g := NewWithT(t)
	of := func(severities ...admin.Severity) grade {
		a := &assessment{}
		for _, s := range severities {
			a.Findings = append(a.Findings, remark{"", admin.Finding{Severity: s}})
		}
		a.settle(nil)
		return a.Status
	}
	g.Expect(of()).To(Equal(gradeOK))
	g.Expect(of(admin.SeverityInfo)).To(Equal(gradeOK))
	g.Expect(of(admin.SeverityInfo, admin.SeverityWarning)).To(Equal(gradeWarning))
	g.Expect(of(admin.SeverityWarning, admin.SeverityCritical, admin.SeverityInfo)).To(Equal(gradeCritical))
}

func TestOneBarSetsPerformanceDataApart(t *testing.T) {
	g := NewWithT(t)
	a := &assessment{TTLS: 30, named: []string{"k"}, Elections: []holder{{Leader: election.Leader{Key: "k=a'|", Name: "a|b"}, State: standingLeader}}}
	g.Expect(strings.Count(a.nagios(), "|")).To(Equal(1))
	a.named = nil
	g.Expect(a.nagios()).To(And(ContainSubstring("'k_a__ lease_left'=0.000s"), ContainSubstring(`a\x7cb leads`)))
	for range 9 {
		a.Findings = append(a.Findings, remark{"", admin.Finding{Severity: admin.SeverityWarning, Message: "x"}})
	}
	g.Expect(a.summary()).To(Equal("x; x; x; and 6 more"))
}

func TestACheckWithoutElectionsWritesMetricsToo(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	a := &assessment{Bucket: "B", Status: gradeOK}
	g.Expect(a.prometheus(&out)).To(Succeed())
	g.Expect(valueOf(parse(g, out.String()), "election_check_status", "")).To(Equal(0.0))
}
