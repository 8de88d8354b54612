package look

import (
	"fmt"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/observe"
)

// PrintableEvent returns a copy of e in which the text from the bucket is printable and has limits.
func PrintableEvent(e observe.Event) observe.Event {
	e.Key, e.Leader, e.By = terminal.Printable(e.Key), PrintableLeader(e.Leader), terminal.Printable(e.By)
	e.Reason = election.Reason(terminal.Printable(string(e.Reason)))
	return e
}

// DescribeEvent describes an event in one sentence: what happened, and as far as what is stored proves it, why and by whom.
func DescribeEvent(e observe.Event) string {
	name, key, term := terminal.Quote(e.Leader.Name), terminal.Quote(e.Key), ""
	if e.Leader.Term != 0 {
		term = fmt.Sprintf(", term %d", e.Leader.Term)
	}
	switch e.Kind {
	case observe.Elected:
		text := fmt.Sprintf("%s won %s%s", name, key, inBrackets(e.Reason))
		if e.Leader.State != election.LeaderState {
			text += "; it does not lead yet"
		}
		return text
	case observe.Renewed:
		return fmt.Sprintf("%s renewed %s%s", name, key, term)
	}
	won, led := sinceWhen(e.At, e.Leader.Since), sinceWhen(e.At, e.Leader.LeadsSince)
	switch leads := e.Kind == observe.Leading; {
	case leads && led > time.Second: // the first event of a watch says that somebody leads who may have led for long
		term += fmt.Sprintf(", for %s", terminal.FormatDuration(led))
	case !leads && led > 0:
		term += fmt.Sprintf(", which it led for %s", terminal.FormatDuration(led))
	case won > time.Second, !leads && won > 0:
		term += fmt.Sprintf(", %s after it was elected", terminal.FormatDuration(won))
	}
	switch e.Kind {
	case observe.Leading:
		return fmt.Sprintf("%s leads %s%s", name, key, term)
	case observe.Released:
		return fmt.Sprintf("%s released %s%s%s", name, key, inBrackets(e.Reason), term)
	case observe.Expired:
		return fmt.Sprintf("%s did not renew %s in time%s%s", name, key, inBrackets(e.Reason), term)
	}
	return fmt.Sprintf("%s lost %s%s%s: %s", name, key, inBrackets(e.Reason), term, evictionCause(e))
}

// sinceWhen returns how long before a time another one was; 0 if that is not known.
func sinceWhen(at, before time.Time) time.Duration {
	if before.IsZero() {
		return 0
	}
	return at.Sub(before)
}

// inBrackets returns a reason in the form in which it follows a noun; empty if there is no reason.
func inBrackets(r election.Reason) string {
	if r == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", r)
}

// evictionCause says why a holder lost its key.
func evictionCause(e observe.Event) string {
	switch {
	case e.Reason == election.ReasonDeleted && e.By != "":
		return "evicted by " + terminal.Printable(e.By)
	case e.Reason == election.ReasonDeleted:
		return "the key was deleted, and the deletion does not say by whom"
	case e.Reason == election.ReasonOverwritten:
		return "overwritten by " + terminal.Quote(e.By)
	case e.Reason == election.ReasonBucketReplaced:
		return "the bucket was deleted and made again"
	case e.Reason == election.ReasonRewound:
		return "the server lost its last writes"
	}
	return "what is stored does not say why"
}

// DescribeChange describes an event in a few words, for a line that names the election and the candidate elsewhere.
func DescribeChange(e observe.Event) string {
	text := e.Kind.String() + inBrackets(e.Reason)
	if e.By != "" {
		text += " by " + e.By
	}
	return text
}
