package checkup

import (
	"fmt"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
)

// checkStandbys returns a finding for each election whose holder answers, and from whom no candidate would take over. Whether there are
// candidates that do not answer is not known where the holder does not, and a pause and a lease that is over have findings of their own.
func (r *Result) checkStandbys(answers map[string]look.Answers, about []admin.Finding) []ElectionFinding {
	var found []ElectionFinding
	for _, h := range r.Elections {
		if !h.IsAlone() || h.RenewalAge >= r.ttl() {
			continue
		}
		var others []admin.Candidate
		for _, c := range answers[h.Key].Candidates {
			if terminal.Printable(c.Instance) != h.Instance {
				others = append(others, c)
			}
		}
		cause, fix := r.alone(h.Key, others, about)
		found = append(found, ElectionFinding{h.Key, admin.Finding{
			Code: codeNoStandby, Severity: admin.SeverityWarning, Fix: fix,
			Message: fmt.Sprintf("nobody would take over %s from %s%s", terminal.Quote(h.Key), terminal.Quote(h.Name), cause),
		}})
	}
	return found
}

// alone returns why no other candidate would take over an election, in words that follow "nobody would take over", and what to do about that.
func (r *Result) alone(key string, others []admin.Candidate, about []admin.Finding) (cause, fix string) {
	if len(others) == 0 {
		return ": no other candidate answers", fmt.Sprintf("start the program on another host too, %s; if one is enough, give --ignore %s", inItsLog, codeNoStandby)
	}
	if cause, fix = r.failing(others, about); cause != "" {
		return cause, fix
	}
	cause = ": 1 other candidate answers, and is not ready"
	if len(others) > 1 {
		cause = fmt.Sprintf(": %d other candidates answer, and none is ready", len(others))
	}
	return cause, r.notReady(key)
}
