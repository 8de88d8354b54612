package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/admin"
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

// assessment is the result of a check. Its field names are documented in the help and stay as they are.
type assessment struct {
	Status      grade    `json:"status"`
	Error       string   `json:"error,omitempty"`
	Bucket      string   `json:"bucket"`
	Server      string   `json:"server,omitempty"`
	TTLS        float64  `json:"ttl_s,omitempty"`
	ClockAheadS *float64 `json:"clock_ahead_s,omitempty"`
	Elections   []holder `json:"elections"`
	Findings    []remark `json:"findings"`

	named   []string      // the elections that were asked for
	overdue time.Duration // the age from which a renewal is
}

// remark is a finding about the election Key, or about none in particular.
type remark struct {
	Key string `json:"key,omitempty"`
	admin.Finding
}

// settle leaves out what is to be ignored, sorts the rest, the worst first, and grades it all.
func (a *assessment) settle(ignored []string) {
	a.Findings = slices.DeleteFunc(a.Findings, func(r remark) bool { return slices.Contains(ignored, r.Code) })
	slices.SortStableFunc(a.Findings, func(x, y remark) int { return cmp.Compare(y.Severity, x.Severity) })
	if a.Findings == nil {
		a.Findings = []remark{} // in JSON no null
	}
	a.Status = gradeOK
	if len(a.Findings) > 0 {
		a.Status = grade(a.Findings[0].Severity) // they are counted alike
	}
}

// vacant says whether an election that must have a leader has none.
func (a *assessment) vacant() bool {
	return slices.ContainsFunc(a.Findings, func(r remark) bool { return r.Code == codeNoLeader })
}

// judge says what is wrong with an election whose key is held by s, or by nobody if s is nil.
func judge(key string, s *holder, ttl, overdue time.Duration) []remark {
	say := func(severity admin.Severity, code, message, fix string) []remark {
		return []remark{{key, admin.Finding{Code: code, Severity: severity, Message: message, Fix: fix}}}
	}
	switch {
	case s == nil:
		return say(admin.SeverityCritical, codeNoLeader, fmt.Sprintf("nobody leads %s", key),
			fmt.Sprintf("see whether its candidates run and reach the bucket: 'election-cli watch %s' shows each win", key))
	case s.age >= ttl:
		return say(admin.SeverityCritical, codeLeaseOver, fmt.Sprintf("the lease of %s on %s ran out %s", s.Name, key, ago(s.age-ttl)),
			"if the key stays, the server does not expire it, or a replica is far behind: see what info says of the bucket")
	}
	var found []remark
	if s.State == standingLeaderElect {
		found = say(admin.SeverityWarning, codeLeaderElect, fmt.Sprintf("%s has won %s, but its leadership does not count yet", s.Name, key), "wait for its stand-down to be over")
	}
	if s.age > overdue {
		found = append(found, say(admin.SeverityWarning, codeOverdue, fmt.Sprintf("%s renewed %s %s, and should have after %s", s.Name, key, ago(s.age), human(overdue)),
			"check its host and its connection to the server; if it renews less often by intent, raise --overdue")...)
	}
	return found
}

// judgeClaims says where two candidates claim to lead the same election. One that answers twice is no two.
func judgeClaims(claims []claim) []remark {
	byKey := map[string]map[string]string{} // key, instance: who it is
	for _, c := range claims {
		if byKey[c.Key] == nil {
			byKey[c.Key] = map[string]string{}
		}
		byKey[c.Key][c.Instance] = fmt.Sprintf("%s on %s", printable(c.Name), printable(cmp.Or(c.Host, "an unknown host")))
	}
	var found []remark
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if leaders := byKey[key]; len(leaders) > 1 {
			who := slices.Sorted(maps.Values(leaders))
			found = append(found, remark{printable(key), admin.Finding{
				Code: codeTwoLeaders, Severity: admin.SeverityCritical,
				Message: fmt.Sprintf("%d candidates claim to lead %s: %s", len(leaders), printable(key), strings.Join(who, "; ")),
				Fix:     "compare their fencing tokens: the candidate with the later token leads; stop the other one, and check its clock",
			}})
		}
	}
	return found
}

// judgeClock says whether this host's clock is wrong.
func judgeClock(c serverTime) []remark {
	if !c.differs(clockBound) {
		return nil
	}
	return []remark{{"", admin.Finding{
		Code: codeClock, Severity: admin.SeverityInfo, Message: clockError(c), Fix: "set this host's clock, or the server's",
	}}}
}
