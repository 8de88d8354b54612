package look

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/natural"
	"github.com/natscampaign/election/observe"
)

// Ended returns how the elections of the given keys ended that nobody holds now, or all of the bucket, with printable text and in the natural order of the
// keys, see [observe.Observer.Ended].
func (v *View) Ended(ctx context.Context, keys ...string) ([]observe.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	ended, err := v.Observer.Ended(ctx, keys...)
	printable := []observe.Event{} // not nil, which JSON would encode as null
	for _, e := range ended {
		if !IsOtherData(e.Leader) {
			printable = append(printable, PrintableEvent(e))
		}
	}
	slices.SortStableFunc(printable, func(a, b observe.Event) int { return natural.Compare(a.Key, b.Key) })
	return printable, err
}

// LastEnd returns how an election ended that nobody holds now; false if that is not known, or cannot be read.
func (v *View) LastEnd(ctx context.Context, key string) (observe.Event, bool) {
	if ended, err := v.Ended(ctx, key); err == nil && len(ended) > 0 {
		return ended[0], true
	}
	return observe.Event{}, false
}

// DescribeEnd says who led an election last, until when, and why that ended, by the server's clock, as in
// "web-1 led until 2026-11-22 20:08:52 (5 min ago), term 4711: it was stopped".
func (v *View) DescribeEnd(e observe.Event) string {
	until := terminal.TimestampAgo(e.At, v.Clock.AtLeast(time.Now()).Sub(e.At))
	name := terminal.Quote(e.Leader.Name)
	switch {
	case e.Kind == observe.Expired && e.Leader.Term != 0:
		return fmt.Sprintf("%s led until %s, term %d: its session did not renew its lease, and did not release it", name, until, e.Leader.Term)
	case e.Kind == observe.Expired && e.Leader.Name == "":
		return fmt.Sprintf("the key expired %s: its leader did not renew it, and did not release it", until)
	case e.Kind == observe.Evicted && e.Leader.Name == "":
		return fmt.Sprintf("the key was deleted %s, and the deletion does not say by whom", until)
	case e.Leader.Term == 0:
		return fmt.Sprintf("%s held the key until %s, and did not lead: %s", name, until, EndCause(e))
	}
	return fmt.Sprintf("%s led until %s, term %d: %s", name, until, e.Leader.Term, EndCause(e))
}

// EndCause says in a few words why a term ended.
func EndCause(e observe.Event) string {
	if e.Kind == observe.Evicted {
		return "evicted by " + cmp.Or(e.By, "somebody")
	}
	if e.Kind == observe.Expired {
		return "it did not renew its lease"
	}
	switch e.Reason {
	case election.ReasonStopped:
		return "it was stopped"
	case election.ReasonResigned:
		return "it resigned"
	case election.ReasonTransferred:
		return "it handed over"
	case election.ReasonRelinquished:
		return "it gave the key to others"
	case election.ReasonUnhealthy:
		return "its health check failed"
	case election.ReasonWorkEnded:
		return "its work ended"
	case election.ReasonDied:
		return "its process died"
	case "":
		return "it gave up a win before it led"
	}
	return fmt.Sprintf("it released the key (%s)", e.Reason)
}

// EndedTable returns the table of ended elections.
func EndedTable(v *View, ended []observe.Event) *terminal.Table {
	t := &terminal.Table{
		Title:  fmt.Sprintf("Ended elections in bucket %s", v.Bucket.Bucket()),
		Header: []string{"Election", "Last leader", "Ended", "Why", "Term", "Host"},
		Least:  []string{"Term", "Host"},
	}
	now := v.Clock.AtLeast(time.Now())
	for _, e := range ended {
		t.Add(e.Key, cmp.Or(e.Leader.Name, "-"), terminal.TimestampAgo(e.At, now.Sub(e.At)), strings.TrimPrefix(EndCause(e), "it "),
			terminal.NumberOrDash(e.Leader.Term), cmp.Or(e.Leader.Host, "-"))
	}
	return t
}
