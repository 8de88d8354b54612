package checkup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timing"
)

// Codes of findings, in addition to those of the package admin.
const (
	codeNoBucket    = "no-bucket"
	codeNoLeader    = "no-leader"
	codeLeaseOver   = "lease-over"
	codeTwoLeaders  = "two-leaders"
	codeLeaderElect = "leader-elect"
	codeOverdue     = "renewal-overdue"
	codePaused      = "paused"
	codeClock       = "clock-differs"
	codeSameName    = "same-name"
	codeNoStandby   = "no-standby"

	codeCopiedProcess = "copied-process"
)

// checkPaused returns a finding for each paused election among the keys, unless it is known to have no leader.
func (r *Result) checkPaused(keys []string, v *look.View) (found []ElectionFinding) {
	for _, key := range keys {
		vacant := func(f ElectionFinding) bool { return f.Key == key && f.Code == codeNoLeader }
		if v.IsPaused(key) && !slices.ContainsFunc(r.Findings, vacant) {
			found = append(found, ElectionFinding{key, admin.Finding{
				Code: codePaused, Severity: admin.SeverityWarning, Message: terminal.Quote(key) + " is " + v.DescribePause(key) + ": no candidate campaigns", Fix: r.resumeFix(key),
			}})
		}
	}
	return found
}

// resumeFix returns the fix for a paused election.
func (r *Result) resumeFix(key string) string { return "run " + r.command("resume "+key) }

// ttl returns the TTL of the bucket.
func (r *Result) ttl() time.Duration { return terminal.FromSeconds(r.TTLS) }

// overdueAge returns the age of a record from which its renewal is overdue: the one of the options or, if that is 0, the one that follows from the
// interval of the holder.
func (r *Result) overdueAge(h *look.Holder) time.Duration {
	if r.options.Overdue > 0 {
		return r.options.Overdue
	}
	ttl := r.ttl()
	due := h.RenewalInterval(ttl)
	return due + (ttl-due)*overduePercent/100
}

// checkLeader returns the findings about the holder of a key, which is nil if the key has none.
// pause is what DescribePause says.
func (r *Result) checkLeader(key string, h *look.Holder, pause string) []ElectionFinding {
	finding := func(severity admin.Severity, code, fix string, message func(formatDuration) string) ElectionFinding {
		return ElectionFinding{key, admin.Finding{Code: code, Severity: severity, Message: message(terminal.FormatDuration), Short: message(terminal.FormatRoughly), Fix: fix}}
	}
	ttl, quoted := r.ttl(), terminal.Quote(key)
	switch {
	case h == nil && pause != "":
		return []ElectionFinding{finding(admin.SeverityCritical, codeNoLeader, r.resumeFix(key), func(formatDuration) string {
			return "nobody leads " + quoted + ": the election is " + pause
		})}
	case h == nil:
		return []ElectionFinding{finding(admin.SeverityCritical, codeNoLeader, "", func(formatDuration) string { return "nobody leads " + quoted })}
	case ttl > 0 && h.RenewalAge >= ttl:
		fix := ""
		if h.RenewalAge < ttl+timing.ExpiryLateness {
			fix = "check again in a second: the server is up to " + timing.ExpiryLateness.String() + " late to remove the key"
		}
		return []ElectionFinding{finding(admin.SeverityCritical, codeLeaseOver, fix, func(format formatDuration) string {
			return fmt.Sprintf("the lease of %s on %s ended %s ago", terminal.Quote(h.Name), quoted, format(h.RenewalAge-ttl))
		})}
	}
	var found []ElectionFinding
	if h.State == look.StateLeaderElect {
		found = append(found, finding(admin.SeverityWarning, codeLeaderElect, fmt.Sprintf("wait for the end of its stand-down: %s returns then", r.command("wait "+key)), func(formatDuration) string {
			return fmt.Sprintf("%s has won %s, but its leadership does not count yet", terminal.Quote(h.Name), quoted)
		}))
	}
	if overdue := r.overdueAge(h); ttl > 0 && h.RenewalAge > overdue { // without a TTL the bucket is the finding
		const fix = "check its host and its connection to the server; if it renews less often on purpose, raise --overdue"
		found = append(found, finding(admin.SeverityWarning, codeOverdue, fix, func(format formatDuration) string {
			return fmt.Sprintf("%s renewed %s %s ago, although it renews every %s (reported after %s)", terminal.Quote(h.Name), quoted, format(h.RenewalAge), format(h.RenewalInterval(ttl)), format(overdue))
		}))
	}
	return found
}

// formatDuration formats a duration.
type formatDuration func(time.Duration) string

// checkClock returns a finding if the clock of this host differs from the server's clock.
func checkClock(c look.ServerClock) []ElectionFinding {
	if !c.Differs(look.ClockTolerance) {
		return nil
	}
	return []ElectionFinding{{"", admin.Finding{
		Code: codeClock, Severity: admin.SeverityInfo, Message: look.ClockDifference(c), Fix: "set this host's clock, or the server's",
	}}}
}

// checkClaims returns a finding for each election that several candidates claim to lead, given these candidates and the holders of the keys.
func checkClaims(byKey map[string][]admin.Candidate, holders []look.Holder) []ElectionFinding {
	var found []ElectionFinding
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		claims := byKey[key]
		copied := look.Copied(claims)
		what, fix := "", "stop the candidates whose last log line 'State changed' has a smaller term, and check their clocks"
		var candidates []string
		for _, c := range claims {
			candidate := fmt.Sprintf("%s on %s", terminal.Quote(c.Name), place(c.Host, c.Connection, copied))
			candidates = append(candidates, candidate)
			if slices.ContainsFunc(holders, func(h look.Holder) bool { return h.Key == key && h.Instance == c.Instance && c.Instance != "" }) {
				fix = fmt.Sprintf("stop all but %s, which holds the key, and check their clocks", candidate)
			}
		}
		slices.Sort(candidates)
		if copied {
			what, fix = ", and are a process and its copy, with the same token", copiedFix
		}
		found = append(found, ElectionFinding{terminal.Printable(key), admin.Finding{
			Code: codeTwoLeaders, Severity: admin.SeverityCritical,
			Message: fmt.Sprintf("%d candidates claim to lead %s%s: %s", len(candidates), terminal.Quote(key), what, strings.Join(candidates, "; ")),
			Fix:     fix,
		}})
	}
	return found
}

// place says where a process is: on which host or, if it has a copy, which is on a host of the same name, by which connection.
func place(host, connection string, copied bool) string {
	text := terminal.Printable(cmp.Or(host, "an unknown host"))
	if copied && connection != "" {
		text += ", connection " + terminal.Printable(connection)
	}
	return text
}

// copiedFix is what to do about a copy of a process.
const copiedFix = "stop all but one of them; 'nats server report connections' says from where each connects; do not clone a machine, or resume a snapshot twice, while candidates run on it"

// checkNames returns a finding for each name that several candidates of an election have, given the answers of its candidates: one name for
// two candidates, or one candidate in two processes.
func checkNames(answers map[string]look.Answers) []ElectionFinding {
	var found []ElectionFinding
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		namesakes := look.Namesakes(answers[key].Candidates)
		for _, name := range slices.Sorted(maps.Keys(namesakes)) {
			copied := look.Copied(namesakes[name])
			var of []string
			for _, c := range namesakes[name] {
				of = append(of, fmt.Sprintf("process %d on %s", c.PID, place(c.Host, c.Connection, copied)))
			}
			slices.Sort(of)
			f := admin.Finding{
				Code: codeSameName, Severity: admin.SeverityInfo, Message: fmt.Sprintf("%d candidates in %s have the name %s", len(of), terminal.Quote(key), terminal.Quote(name)),
				Fix: "give each candidate a name of its own, or give 'transfer' the instance",
			}
			if copied {
				f.Code, f.Severity, f.Fix = codeCopiedProcess, admin.SeverityWarning, copiedFix
				f.Message += ", and are a process and its copy, with the same instance"
			}
			f.Message += ": " + strings.Join(of, "; ")
			found = append(found, ElectionFinding{terminal.Printable(key), f})
		}
	}
	return found
}
