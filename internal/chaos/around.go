package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/history"
)

// mostExplained is how many violations are told with what happened around them.
const mostExplained = 5

// happening is a line of what happened.
type happening struct {
	at   time.Duration
	text string
}

// around tells what happened within two TTLs of a violation.
func (d *Drill) around(run *history.Run, at time.Duration) []string {
	near := history.Span{From: at - 2*d.TTL, To: at + 2*d.TTL}
	var all []happening
	tell := func(at time.Duration, format string, a ...any) {
		if at >= near.From && at <= near.To {
			all = append(all, happening{at, fmt.Sprintf("%8.3f s  %s", (at - run.From).Seconds(), fmt.Sprintf(format, a...))})
		}
	}
	for _, i := range d.injuries {
		tell(i.span.From, "%s of %s: %s", i.name, i.target(), cmp.Or(i.note, "begins"))
		if i.span.To-i.span.From > time.Second {
			tell(i.span.To, "%s of %s: over", i.name, i.target())
		}
	}
	for _, o := range run.Outages {
		tell(o.From, "the bucket takes no writes")
		tell(o.To, "the bucket takes writes again")
	}
	for _, b := range run.Beliefs {
		tell(b.From, "%s believes in term %d", b.Candidate, b.Term)
		tell(b.To, "%s no longer believes in term %d (%s), of which the deadline is at %.3f s",
			b.Candidate, b.Term, cmp.Or(b.Reason, "it was killed"), (b.Deadline - run.From).Seconds())
	}
	slices.SortFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	var lines []string
	for _, h := range all {
		lines = append(lines, h.text)
	}
	return lines
}
