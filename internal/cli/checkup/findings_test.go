package checkup

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
)

// codesOf returns the code and the key of each warning and critical finding.
func codesOf(all []ElectionFinding) []string {
	var codes []string
	for _, f := range all {
		if f.Severity > admin.SeverityInfo {
			codes = append(codes, strings.TrimSuffix(f.Code+" "+f.Key, " "))
		}
	}
	return codes
}

// limited returns a result of a bucket with the TTL, for a check with the given age of an overdue renewal; 0 for the default.
func limited(ttl, overdue time.Duration) *Result {
	return &Result{TTLS: ttl.Seconds(), options: Options{Overdue: overdue}}
}

func TestFindingsAboutALeaderDependOnTheAgeOfItsRecord(t *testing.T) {
	g := NewWithT(t)
	const ttl, overdue = 20 * time.Second, 17 * time.Second
	for _, c := range []struct {
		age   time.Duration
		state string
		want  []string
	}{
		{0, look.StateLeader, nil},
		{15*time.Second + 100*time.Millisecond, look.StateLeader, nil},
		{17 * time.Second, look.StateLeader, nil},
		{17*time.Second + 1, look.StateLeader, []string{"renewal-overdue k"}},
		{20*time.Second - 1, look.StateLeader, []string{"renewal-overdue k"}},
		{20 * time.Second, look.StateLeader, []string{"lease-over k"}},
		{21 * time.Second, look.StateLeaderElect, []string{"lease-over k"}},
		{time.Second, look.StateLeaderElect, []string{"leader-elect k"}},
		{18 * time.Second, look.StateLeaderElect, []string{"leader-elect k", "renewal-overdue k"}},
		{time.Second, look.StatePlain, nil},
		{18 * time.Second, look.StatePlain, []string{"renewal-overdue k"}},
	} {
		h := &look.Holder{Leader: election.Leader{Key: "k", Name: "a"}, State: c.state, RenewalAge: c.age, TimeLeft: ttl - c.age}
		g.Expect(codesOf(limited(ttl, overdue).checkLeader("k", h, ""))).To(Equal(c.want), "%v", c)
	}
	fast := &look.Holder{Leader: election.Leader{Key: "k", Name: "a", Interval: 5 * time.Second}, State: look.StateLeader, RenewalAge: 11 * time.Second}
	g.Expect(codesOf(limited(ttl, 0).checkLeader("k", fast, ""))).To(BeEmpty())
	fast.RenewalAge++
	found := limited(ttl, 0).checkLeader("k", fast, "")
	g.Expect(codesOf(found)).To(Equal([]string{"renewal-overdue k"}), "what the leader says is its interval counts")
	g.Expect(found[0].Short).To(Equal(`"a" renewed "k" 11s ago, although it renews every 5s (reported after 11s)`))
	g.Expect(codesOf(limited(ttl, overdue).checkLeader("k", nil, ""))).To(Equal([]string{"no-leader k"}))
	g.Expect(limited(0, 0).checkLeader("k", fast, "")).To(BeEmpty(), "without a TTL no lease is over")
	late := &look.Holder{Leader: election.Leader{Key: "k", Name: "a"}, RenewalAge: ttl + 399*time.Millisecond}
	g.Expect(limited(ttl, 0).checkLeader("k", late, "")[0].Fix).To(HavePrefix("check again in a second: the server is up to 400ms late"))
	late.RenewalAge += time.Second // a second later it cannot be that any more
	g.Expect(limited(ttl, 0).checkLeader("k", late, "")[0].Fix).To(BeEmpty())
}

func TestTwoClaimsOfLeadershipAreCritical(t *testing.T) {
	g := NewWithT(t)
	one, two := admin.Candidate{Key: "jobs", Name: "web-1", Instance: "i1", Host: "h1"}, admin.Candidate{Key: "jobs", Name: "web-2", Instance: "i2", Host: ""}
	g.Expect(checkClaims(nil, nil)).To(BeEmpty())
	found := checkClaims(map[string][]admin.Candidate{"jobs": {one, two}}, []look.Holder{{Leader: election.Leader{Key: "other", Instance: "i1"}}})
	g.Expect(codesOf(found)).To(Equal([]string{"two-leaders jobs"}))
	g.Expect(found[0].Severity).To(Equal(admin.SeverityCritical))
	g.Expect(found[0].Message).To(Equal(`2 candidates claim to lead "jobs": "web-1" on h1; "web-2" on an unknown host`))
	g.Expect(found[0].Fix).To(HavePrefix("stop the candidates whose last log line 'State changed' has a smaller term"))
	holder := look.Holder{Leader: election.Leader{Key: "jobs", Instance: "i1"}}
	found = checkClaims(map[string][]admin.Candidate{"jobs": {one, two}}, []look.Holder{holder})
	g.Expect(found[0].Fix).To(Equal(`stop all but "web-1" on h1, which holds the key, and check their clocks`))

	one.Connection = "5@n1"
	two = one
	two.Connection = "7@n2"
	found = checkClaims(map[string][]admin.Candidate{"jobs": {two, one}}, []look.Holder{holder})
	g.Expect(codesOf(found)).To(Equal([]string{"two-leaders jobs"}))
	g.Expect(found[0].Message).To(Equal(`2 candidates claim to lead "jobs", and are a process and its copy, with the same token: "web-1" on h1, connection 5@n1; "web-1" on h1, connection 7@n2`))
	g.Expect(found[0].Fix).To(HavePrefix("stop all but one of them"), "tokens tell nothing")
}

func TestAVacancyIsExplainedByABucketThatNobodyCanWrite(t *testing.T) {
	g := NewWithT(t)
	const ttl = 10 * time.Second
	full := admin.Finding{Code: "account-full", Severity: admin.SeverityCritical, Message: "the account stores …", Fix: "raise max_file"}
	late := &look.Holder{Leader: election.Leader{Key: "k", Name: "a"}, RenewalAge: 2 * ttl}
	for want, c := range map[string]struct {
		holder *look.Holder
		pause  string
		bucket []admin.Finding
	}{
		`the lease of "a" on "k" ended 10s ago: the account has no room for a record. Fix: raise max_file`:            {late, "", []admin.Finding{full}},
		`nobody leads "k": the account has no room for a record. Fix: raise max_file`:                                 {nil, "", []admin.Finding{{Code: "memory"}, full}},
		`nobody leads "k": the election is paused since 2026-11-22 20:08:52 by a@b. Fix: run 'election-cli resume k'`: {nil, "paused since 2026-11-22 20:08:52 by a@b", []admin.Finding{full}},
	} {
		r := &Result{Findings: limited(ttl, ttl).checkLeader("k", c.holder, c.pause)}
		r.explainVacancies(nil, c.bucket)
		g.Expect(r.Findings).To(HaveLen(1))
		g.Expect(r.Findings[0].sentence()).To(Equal(want))
	}
	full.Severity = admin.SeverityWarning
	for holder, says := range map[*look.Holder]string{late: `ended 10s ago: no candidate answers`, nil: `nobody leads "k": no candidate answers`} {
		r := &Result{Findings: limited(ttl, ttl).checkLeader("k", holder, "")}
		r.explainVacancies(nil, []admin.Finding{full})
		g.Expect(r.Findings[0].sentence()).To(ContainSubstring(says))
	}
}

func TestTheFixOfARequestThatFailsDependsOnItsError(t *testing.T) {
	g := NewWithT(t)
	about := []admin.Finding{{Code: "bucket-full", Fix: "more room"}, {Code: "account-full", Fix: "more room in the account"}, {Code: "memory-replicated", Fix: "make it again"}}
	for says, fix := range map[string][2]string{ // with the findings about the bucket, and without
		`nats: Permissions Violation for Publish to "$KV.B.k": context deadline exceeded`:                      {`permit the user of "b" to publish to $KV.B.k`, ``},
		`… nats: Permissions Violation for Subscription to "_INBOX.a.*"`:                                       {`have "b" connect with the inbox prefix that its permissions name, by --inbox-prefix, ELECTION_INBOX_PREFIX or nats.CustomInboxPrefix`, ``},
		"nats: API error: code=400 err_code=10002 description=resource limits exceeded for account":            {"more room in the account", "raise max_file of the account, or max_mem for a bucket in memory, or remove messages or streams of the account, which 'nats stream report' lists"},
		"nats: API error: code=503 err_code=10023 description=insufficient resources":                          {"raise max_file of the servers, or max_mem for a bucket in memory, or remove what fills them, which 'nats stream report' lists, or their disks", ""},
		"nats: API error: code=503 err_code=10077 description=maximum bytes exceeded":                          {"more room", "wait until it tries again: the bucket has room now"},
		"invalid option: WithCampaignInterval(9s) leaves no time":                                              {`change that option of "b", or the bucket's TTL`, ""},
		`bucket unsuitable for elections: "B" is kept in memory, with 3 replicas: stop all candidates, then …`: {"make it again", "wait until it looks again: the bucket is fit now"},
		"context deadline exceeded": {`read the log of "b", and mend its connection or what that error names`, ""},
	} {
		c := admin.Candidate{Name: "b", LastError: says, LastErrorAge: 2100 * time.Millisecond}
		r := &Result{Bucket: "B", TTLS: 10}
		cause, withFindings := r.failing([]admin.Candidate{{Name: "a"}, c}, about)
		g.Expect(cause).To(Equal(`: requests of "b" fail, 2.1s ago: ` + says))
		_, without := r.failing([]admin.Candidate{c}, nil)
		g.Expect(withFindings).To(Equal(fix[0]))
		g.Expect(without).To(Equal(cmp.Or(fix[1], fix[0])))
	}
}

func TestOnlyAnErrorOfTheLastTryOfACandidateThatIsNotReadyIsAReason(t *testing.T) {
	g := NewWithT(t)
	const ttl = 10 * time.Second
	fails := admin.Candidate{Name: "b", LastError: "insufficient resources\x1b", LastErrorAge: 3 * time.Second}
	stale, ready, undated := fails, fails, fails
	stale.LastErrorAge = 2*ttl + 3*time.Second // it has tried again since, or is held back
	ready.Ready, undated.LastErrorAge = true, 0
	late := &look.Holder{Leader: election.Leader{Key: "k", Name: "a"}, RenewalAge: 2 * ttl}
	for _, holder := range []*look.Holder{late, nil} {
		for says, candidates := range map[string][]admin.Candidate{
			`: requests of "b" fail, 3s ago: insufficient resources\x1b. Fix: raise max_file of the servers`: {{Name: "a"}, fails},
			`: requests of "b" fail: insufficient resources\x1b. Fix: `:                                      {stale, undated},
			`: 1 candidate answers, and none is ready. Fix: run 'election-cli candidates k --bucket B'`:      {stale},
			`: 2 candidates answer. Fix: run 'election-cli wait k --max-wait 31s --bucket B'; if nobody`:     {fails, ready},
		} {
			r := limited(ttl, ttl)
			r.Bucket, r.Findings = "B", r.checkLeader("k", holder, "")
			r.explainVacancies(map[string]look.Answers{"k": {Candidates: candidates}}, nil)
			g.Expect(r.Findings[0].sentence()).To(ContainSubstring(says))
		}
	}
}

func TestForecastsAreForPeopleWhoseElectionsWork(t *testing.T) {
	const forecast = "expect-crash: after a crash …"
	none := 0
	for name, c := range map[string]struct {
		holders []look.Holder
		found   []ElectionFinding
		shown   bool
	}{
		"an empty bucket":                    {nil, nil, true},
		"a leader":                           {[]look.Holder{{}}, nil, true},
		"a leader, and a warning":            {[]look.Holder{{}}, []ElectionFinding{{"", admin.Finding{Severity: admin.SeverityWarning, Code: "memory"}}}, true},
		"a paused election, and another":     {[]look.Holder{{Paused: true}, {}}, nil, true},
		"nobody leads":                       {nil, limited(time.Second, 0).checkLeader("k", nil, ""), false},
		"nobody leads one of two":            {[]look.Holder{{}}, limited(time.Second, 0).checkLeader("k", nil, ""), false},
		"nobody would take over":             {[]look.Holder{{Standbys: &none}}, nil, false},
		"a paused election":                  {[]look.Holder{{Paused: true}}, nil, false},
		"a paused election without a leader": {nil, []ElectionFinding{{"k", admin.Finding{Severity: admin.SeverityWarning, Code: codePaused}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := &Result{Elections: c.holders, Findings: append(c.found, ElectionFinding{"", admin.Finding{Code: "expect-crash", Short: "after a crash …"}})}
			r.setStatus(nil)
			var text, verbose bytes.Buffer
			g.Expect(r.Write(&text, FormatText)).To(Succeed())
			g.Expect(strings.Contains(text.String(), forecast)).To(Equal(c.shown), text.String())
			g.Expect(r.WriteVerbose(&verbose)).To(Succeed())
			g.Expect(verbose.String()).To(ContainSubstring("expect-crash"))
			g.Expect(r.Findings).To(ContainElement(HaveField("Code", "expect-crash")), "for programs")
		})
	}
}

func TestAWrongClockIsAFindingOfSeverityInfo(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	r := &Result{Findings: checkClock(look.NewServerClock(now.Add(time.Hour), now, now))}
	g.Expect(r.Findings).To(HaveLen(1))
	g.Expect(r.Findings[0].Message).To(Equal("this host's clock is 1h0m0s behind the server's"))
	r.setStatus(nil)
	g.Expect(r.Status).To(Equal(StatusOK))
	g.Expect(checkClock(look.NewServerClock(now.Add(900*time.Millisecond), now, now))).To(BeEmpty())
}

func TestTheMostSevereFindingSetsTheStatus(t *testing.T) {
	g := NewWithT(t)
	statusOf := func(severities ...admin.Severity) Status {
		r := &Result{}
		for _, s := range severities {
			r.Findings = append(r.Findings, ElectionFinding{"", admin.Finding{Severity: s}})
		}
		r.setStatus(nil)
		return r.Status
	}
	g.Expect(statusOf()).To(Equal(StatusOK))
	g.Expect(statusOf(admin.SeverityInfo)).To(Equal(StatusOK))
	g.Expect(statusOf(admin.SeverityInfo, admin.SeverityWarning)).To(Equal(statusWarning))
	g.Expect(statusOf(admin.SeverityWarning, admin.SeverityCritical, admin.SeverityInfo)).To(Equal(statusCritical))
}

func TestOnlyOneBarPrecedesPerformanceData(t *testing.T) {
	g := NewWithT(t)
	r := &Result{TTLS: 30, options: Options{Keys: []string{"k"}}, Elections: []look.Holder{{Leader: election.Leader{Key: "k=a'|", Name: "a|b"}, State: look.StateLeader}}}
	g.Expect(strings.Count(r.nagios(), "|")).To(Equal(1))
	r.options.Keys = nil
	g.Expect(r.nagios()).To(And(ContainSubstring("'k_a__ lease_left'=0.000s"), ContainSubstring(`a\x7cb" leads`)))
	for range 9 {
		r.Findings = append(r.Findings, ElectionFinding{"", admin.Finding{Severity: admin.SeverityWarning, Message: "x"}})
	}
	g.Expect(r.summary(describeHolder)).To(Equal("x; x; x; and 6 more"))
}

func TestMetricsAreWrittenWithoutElections(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	r := &Result{Bucket: "B", Status: StatusOK}
	g.Expect(r.prometheus(&out)).To(Succeed())
	g.Expect(clitest.MetricValue(clitest.ParseMetrics(g, out.String()), "election_check_status", "")).To(Equal(0.0))
}

func TestTheLineForNagiosIsShortHoweverManyElectionsThereAre(t *testing.T) {
	g := NewWithT(t)
	r := &Result{TTLS: 10}
	for i := range 5000 {
		r.Elections = append(r.Elections, look.Holder{Leader: election.Leader{Key: fmt.Sprintf("election-%d", i), Name: "web-1"}})
	}
	line := r.nagios()
	g.Expect(len(line)).To(BeNumerically("<", 8<<10))
	g.Expect(line).To(HaveSuffix(" elections_left_out=4950"))
}

func TestCandidatesOfOneNameAreAFinding(t *testing.T) {
	g := NewWithT(t)
	web := func(instance string, pid int) admin.Candidate {
		return admin.Candidate{Name: "web", Instance: instance, Host: "h", PID: pid}
	}
	answers := map[string]look.Answers{
		"a": {Candidates: []admin.Candidate{web("1", 7), {Name: "other", Instance: "3"}}},
		"b": {Candidates: []admin.Candidate{web("1", 7), web("2", 8)}},
	}
	found := checkNames(answers)
	g.Expect(found).To(HaveLen(1))
	g.Expect([]any{found[0].Key, found[0].Code, found[0].Severity}).To(Equal([]any{"b", "same-name", admin.SeverityInfo}))
	g.Expect(found[0].Message).To(Equal(`2 candidates in "b" have the name "web": process 7 on h; process 8 on h`))
	_, table := look.CandidatesOf("b", answers["b"].Candidates)
	g.Expect(table.Header).To(ContainElement("Instance"), "transfer takes it")
	_, table = look.CandidatesOf("a", answers["a"].Candidates)
	g.Expect(table.Header).NotTo(ContainElement("Instance"))
}

func TestACopyOfAProcessIsAWarning(t *testing.T) {
	g := NewWithT(t)
	web := func(connection string) admin.Candidate {
		return admin.Candidate{Name: "web", Instance: "1", Host: "h", PID: 7, Connection: connection}
	}
	copies := []admin.Candidate{web("5@n1"), web("7@n2")}
	found := checkNames(map[string]look.Answers{"a": {Candidates: copies}})
	g.Expect(found).To(HaveLen(1))
	g.Expect([]any{found[0].Key, found[0].Code, found[0].Severity}).To(Equal([]any{"a", "copied-process", admin.SeverityWarning}))
	g.Expect(found[0].Message).To(Equal(`2 candidates in "a" have the name "web", and are a process and its copy, with the same instance: process 7 on h, connection 5@n1; process 7 on h, connection 7@n2`))
	_, table := look.CandidatesOf("a", copies)
	g.Expect(table.Header).To(ContainElement("Connection"), "which alone tells them apart")
}
