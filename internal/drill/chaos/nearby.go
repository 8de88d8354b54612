package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
)

// maxExplained is the number of violations for which the report lists the events around them.
const maxExplained = 5

// maxListed is the number of violations that the report lists. A fault on a session concerns many keys.
const maxListed = 100

// nearbyEvent is a line of the report with an event near a violation.
type nearbyEvent struct {
	at   time.Duration
	text string
}

// eventsNear lists the events within two TTLs of a violation, in the order of their times.
func (d *Drill) eventsNear(run *history.Run, at time.Duration) []string {
	near := history.Span{From: at - 2*d.TTL, To: at + 2*d.TTL}
	var events []nearbyEvent
	add := func(at time.Duration, format string, a ...any) {
		if at >= near.From && at <= near.To {
			events = append(events, nearbyEvent{at, fmt.Sprintf("%8.3f s  %s", (at - run.From).Seconds(), fmt.Sprintf(format, a...))})
		}
	}
	for _, f := range d.injected {
		add(f.span.From, "%s of %s: %s", f.name, f.target(), cmp.Or(f.detail, "begins"))
		if f.span.To-f.span.From > time.Second {
			add(f.span.To, "%s of %s: over", f.name, f.target())
		}
	}
	for _, o := range run.Outages {
		add(o.From, "the bucket takes no writes")
		add(o.To, "the bucket takes writes again")
	}
	for _, b := range run.Beliefs {
		add(b.From, "%s considers itself leader in term %d", b.Candidate, b.Term)
		add(b.To, "%s no longer considers itself leader in term %d (%s); the deadline of the term is %.3f s",
			b.Candidate, b.Term, cmp.Or(b.Reason, "it was killed"), (b.Deadline - run.From).Seconds())
	}
	slices.SortFunc(events, func(a, b nearbyEvent) int { return cmp.Compare(a.at, b.at) })
	var lines []string
	for _, e := range events {
		lines = append(lines, e.text)
	}
	return lines
}
