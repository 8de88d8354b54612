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

// Codes of findings, in addition to those of the package admin.
const (
	codeNoLeader    = "no-leader"
	codeLeaseOver   = "lease-over"
	codeTwoLeaders  = "two-leaders"
	codeLeaderElect = "leader-elect"
	codeOverdue     = "renewal-overdue"
	codePaused      = "paused"
	codeClock       = "clock-differs"
)

// checkPaused returns a finding for each paused election among the keys, but for those that are known to have no leader.
func (r *Result) checkPaused(keys []string, v *look.View) (found []ElectionFinding) {
	for _, key := range keys {
		vacant := func(f ElectionFinding) bool { return f.Key == key && f.Code == codeNoLeader }
		if v.IsPaused(key) && !slices.ContainsFunc(r.Findings, vacant) {
			found = append(found, ElectionFinding{key, admin.Finding{
				Code: codePaused, Severity: admin.SeverityWarning, Message: fmt.Sprintf("%s is paused: no candidate campaigns", key),
				Fix: fmt.Sprintf("'election-cli resume %s' ends the pause", key),
			}})
		}
	}
	return found
}

// checkLeader returns the findings about the holder of a key, which is nil if the key has none.
func checkLeader(key string, h *look.Holder, paused bool, ttl, overdue time.Duration) []ElectionFinding {
	finding := func(severity admin.Severity, code, message, fix string) ElectionFinding {
		return ElectionFinding{key, admin.Finding{Code: code, Severity: severity, Message: message, Fix: fix}}
	}
	switch {
	case h == nil && paused:
		return []ElectionFinding{finding(admin.SeverityCritical, codeNoLeader, fmt.Sprintf("nobody leads %s, which is paused", key),
			fmt.Sprintf("'election-cli resume %s' ends the pause", key))}
	case h == nil:
		return []ElectionFinding{finding(admin.SeverityCritical, codeNoLeader, fmt.Sprintf("nobody leads %s", key),
			fmt.Sprintf("check that the candidates run and reach the bucket: 'election-cli watch %s' shows each election", key))}
	case h.RenewalAge >= ttl:
		return []ElectionFinding{finding(admin.SeverityCritical, codeLeaseOver, fmt.Sprintf("the lease of %s on %s ended %s", h.Name, key, terminal.Ago(h.RenewalAge-ttl)),
			"if the key remains, the server does not expire it, or a replica is far behind: run 'election-cli info' to check the bucket")}
	}
	var found []ElectionFinding
	if h.State == look.StateLeaderElect {
		found = append(found, finding(admin.SeverityWarning, codeLeaderElect, fmt.Sprintf("%s has won %s, but its leadership does not count yet", h.Name, key), "wait for the end of its stand-down"))
	}
	if h.RenewalAge > overdue {
		found = append(found, finding(admin.SeverityWarning, codeOverdue, fmt.Sprintf("%s renewed %s %s, although a renewal was due after %s", h.Name, key, terminal.Ago(h.RenewalAge), terminal.FormatDuration(overdue)),
			"check its host and its connection to the server; if it renews less often on purpose, raise --overdue"))
	}
	return found
}

// checkClock returns a finding if the clock of this host differs from the server's clock.
func checkClock(c look.ServerClock) []ElectionFinding {
	if !c.Differs(look.ClockTolerance) {
		return nil
	}
	return []ElectionFinding{{"", admin.Finding{
		Code: codeClock, Severity: admin.SeverityInfo, Message: look.ClockDifference(c), Fix: "set this host's clock, or the server's",
	}}}
}

// checkClaims returns a finding for each election that several candidates claim to lead.
func checkClaims(claims []look.Claim) []ElectionFinding {
	var found []ElectionFinding
	byKey := look.DisputedClaims(claims)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		var candidates []string
		for _, c := range byKey[key] {
			candidates = append(candidates, fmt.Sprintf("%s on %s", terminal.Printable(c.Name), terminal.Printable(cmp.Or(c.Host, "an unknown host"))))
		}
		slices.Sort(candidates)
		found = append(found, ElectionFinding{terminal.Printable(key), admin.Finding{
			Code: codeTwoLeaders, Severity: admin.SeverityCritical,
			Message: fmt.Sprintf("%d candidates claim to lead %s: %s", len(candidates), terminal.Printable(key), strings.Join(candidates, "; ")),
			Fix:     "compare their fencing tokens: the candidate with the later token leads; stop the other candidate, and check its clock",
		}})
	}
	return found
}
