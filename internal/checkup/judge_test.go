package checkup

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/look"
)

// codesOf returns the codes of what is wrong.
func codesOf(all []Remark) []string {
	var codes []string
	for _, r := range all {
		if r.Severity > admin.SeverityInfo {
			codes = append(codes, strings.TrimSuffix(r.Code+" "+r.Key, " "))
		}
	}
	return codes
}

func TestALeaderIsJudgedByTheAgeOfItsRecord(t *testing.T) {
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
		h := &look.Holder{Leader: election.Leader{Key: "k", Name: "a"}, State: c.state, Age: c.age, Left: ttl - c.age}
		g.Expect(codesOf(judge("k", h, ttl, overdue))).To(Equal(c.want), "%v", c)
	}
	g.Expect(codesOf(judge("k", nil, ttl, overdue))).To(Equal([]string{"no-leader k"}))
}

func TestTwoWhoClaimToLeadAreCriticalAndOneThatAnswersTwiceIsNot(t *testing.T) {
	g := NewWithT(t)
	one, two := look.Claim{Key: "jobs", Name: "web-1", Instance: "i1", Host: "h1"}, look.Claim{Key: "jobs", Name: "web-2", Instance: "i2", Host: ""}
	g.Expect(judgeClaims(nil)).To(BeEmpty())
	g.Expect(judgeClaims([]look.Claim{one, one, {Key: "other", Name: "web-2", Instance: "i2", Host: "h2"}})).To(BeEmpty())
	found := judgeClaims([]look.Claim{one, two, one})
	g.Expect(codesOf(found)).To(Equal([]string{"two-leaders jobs"}))
	g.Expect(found[0].Severity).To(Equal(admin.SeverityCritical))
	g.Expect(found[0].Message).To(Equal("2 candidates claim to lead jobs: web-1 on h1; web-2 on an unknown host"))
}

func TestAWrongClockOfThisHostIsSaidAndRaisesNoAlarm(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	a := &Result{Findings: judgeClock(look.ReadServerTime(now.Add(time.Hour), now, now))}
	g.Expect(a.Findings).To(HaveLen(1))
	g.Expect(a.Findings[0].Message).To(Equal("this host's clock is 1h0m0s behind the server's"))
	a.settle(nil)
	g.Expect(a.Status).To(Equal(GradeOK))
	g.Expect(judgeClock(look.ReadServerTime(now.Add(900*time.Millisecond), now, now))).To(BeEmpty())
}

func TestTheWorstFindingDecides(t *testing.T) {
	g := NewWithT(t)
	of := func(severities ...admin.Severity) Grade {
		a := &Result{}
		for _, s := range severities {
			a.Findings = append(a.Findings, Remark{"", admin.Finding{Severity: s}})
		}
		a.settle(nil)
		return a.Status
	}
	g.Expect(of()).To(Equal(GradeOK))
	g.Expect(of(admin.SeverityInfo)).To(Equal(GradeOK))
	g.Expect(of(admin.SeverityInfo, admin.SeverityWarning)).To(Equal(gradeWarning))
	g.Expect(of(admin.SeverityWarning, admin.SeverityCritical, admin.SeverityInfo)).To(Equal(gradeCritical))
}

func TestOneBarSetsPerformanceDataApart(t *testing.T) {
	g := NewWithT(t)
	a := &Result{TTLS: 30, Named: []string{"k"}, Elections: []look.Holder{{Leader: election.Leader{Key: "k=a'|", Name: "a|b"}, State: look.StateLeader}}}
	g.Expect(strings.Count(a.nagios(), "|")).To(Equal(1))
	a.Named = nil
	g.Expect(a.nagios()).To(And(ContainSubstring("'k_a__ lease_left'=0.000s"), ContainSubstring(`a\x7cb leads`)))
	for range 9 {
		a.Findings = append(a.Findings, Remark{"", admin.Finding{Severity: admin.SeverityWarning, Message: "x"}})
	}
	g.Expect(a.summary()).To(Equal("x; x; x; and 6 more"))
}

func TestACheckWithoutElectionsWritesMetricsToo(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	a := &Result{Bucket: "B", Status: GradeOK}
	g.Expect(a.prometheus(&out)).To(Succeed())
	g.Expect(clitest.ValueOf(clitest.Parse(g, out.String()), "election_check_status", "")).To(Equal(0.0))
}
