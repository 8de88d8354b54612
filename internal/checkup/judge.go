package checkup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

// overduePart is the part of the TTL, in percent, after which a renewal is overdue: leaders renew every 75.
const overduePart = 85

// Codes of findings, beside those of the library.
const (
	codeNoLeader    = "no-leader"
	codeLeaseOver   = "lease-over"
	codeTwoLeaders  = "two-leaders"
	codeLeaderElect = "leader-elect"
	codeOverdue     = "renewal-overdue"
	codeClock       = "clock-differs"
)

// Result is the result of a check. Its field names are documented in the help and stay as they are.
type Result struct {
	Status      Grade         `json:"status"`
	Error       string        `json:"error,omitempty"`
	Bucket      string        `json:"bucket"`
	Server      string        `json:"server,omitempty"`
	TTLS        float64       `json:"ttl_s,omitempty"`
	ClockAheadS *float64      `json:"clock_ahead_s,omitempty"`
	Elections   []look.Holder `json:"elections"`
	Findings    []Remark      `json:"findings"`

	Named   []string      `json:"-"` // the elections that were asked for
	overdue time.Duration // the age from which a renewal is
}

// Remark is a finding about the election Key, or about none in particular.
type Remark struct {
	Key string `json:"key,omitempty"`
	admin.Finding
}

// settle leaves out what is to be ignored, sorts the rest, the worst first, and grades it all.
func (a *Result) settle(ignored []string) {
	a.Findings = slices.DeleteFunc(a.Findings, func(r Remark) bool { return slices.Contains(ignored, r.Code) })
	slices.SortStableFunc(a.Findings, func(x, y Remark) int { return cmp.Compare(y.Severity, x.Severity) })
	if a.Findings == nil {
		a.Findings = []Remark{} // in JSON no null
	}
	a.Status = GradeOK
	if len(a.Findings) > 0 {
		a.Status = Grade(a.Findings[0].Severity) // they are counted alike
	}
}

// vacant says whether an election that must have a leader has none.
func (a *Result) vacant() bool {
	return slices.ContainsFunc(a.Findings, func(r Remark) bool { return r.Code == codeNoLeader })
}

// judge says what is wrong with an election whose key is held by s, or by nobody if s is nil.
func judge(key string, s *look.Holder, ttl, overdue time.Duration) []Remark {
	say := func(severity admin.Severity, code, message, fix string) []Remark {
		return []Remark{{key, admin.Finding{Code: code, Severity: severity, Message: message, Fix: fix}}}
	}
	switch {
	case s == nil:
		return say(admin.SeverityCritical, codeNoLeader, fmt.Sprintf("nobody leads %s", key),
			fmt.Sprintf("see whether its candidates run and reach the bucket: 'election-cli watch %s' shows each win", key))
	case s.Age >= ttl:
		return say(admin.SeverityCritical, codeLeaseOver, fmt.Sprintf("the lease of %s on %s ran out %s", s.Name, key, terminal.Ago(s.Age-ttl)),
			"if the key stays, the server does not expire it, or a replica is far behind: see what info says of the bucket")
	}
	var found []Remark
	if s.State == look.StateLeaderElect {
		found = say(admin.SeverityWarning, codeLeaderElect, fmt.Sprintf("%s has won %s, but its leadership does not count yet", s.Name, key), "wait for its stand-down to be over")
	}
	if s.Age > overdue {
		found = append(found, say(admin.SeverityWarning, codeOverdue, fmt.Sprintf("%s renewed %s %s, and should have after %s", s.Name, key, terminal.Ago(s.Age), terminal.Human(overdue)),
			"check its host and its connection to the server; if it renews less often by intent, raise --overdue")...)
	}
	return found
}

// judgeClock says whether this host's clock is wrong.
func judgeClock(c look.ServerTime) []Remark {
	if !c.Differs(look.ClockBound) {
		return nil
	}
	return []Remark{{"", admin.Finding{
		Code: codeClock, Severity: admin.SeverityInfo, Message: look.ClockError(c), Fix: "set this host's clock, or the server's",
	}}}
}

// judgeClaims says where two candidates claim to lead the same election.
func judgeClaims(claims []look.Claim) []Remark {
	var found []Remark
	byKey := look.Disputed(claims)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		var who []string
		for _, c := range byKey[key] {
			who = append(who, fmt.Sprintf("%s on %s", terminal.Printable(c.Name), terminal.Printable(cmp.Or(c.Host, "an unknown host"))))
		}
		slices.Sort(who)
		found = append(found, Remark{terminal.Printable(key), admin.Finding{
			Code: codeTwoLeaders, Severity: admin.SeverityCritical,
			Message: fmt.Sprintf("%d candidates claim to lead %s: %s", len(who), terminal.Printable(key), strings.Join(who, "; ")),
			Fix:     "compare their fencing tokens: the candidate with the later token leads; stop the other one, and check its clock",
		}})
	}
	return found
}

// Unknown is the assessment of a bucket about which nothing could be found out.
func Unknown(bucket string, err error) *Result {
	return &Result{Status: GradeUnknown, Error: terminal.PrintableUpTo(err.Error(), terminal.MaxValue), Bucket: terminal.Printable(bucket), Elections: []look.Holder{}, Findings: []Remark{}}
}
