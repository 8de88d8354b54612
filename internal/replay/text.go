package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/natscampaign/election/internal/model"
)

var kindNames = [...]string{
	"starts", "ends", "crashes", "leaves the model", "is to stop", "is to resign", "sends", "is served", "receives", "reads the key", "has read",
	"loads the bucket's info", "has the bucket's info", "has a watcher", "is notified of a deletion", "shows itself as",
	"the key changes to", "history goes back to",
	"the bucket is made again", "the bucket loses its content",
}

var stateNames = [...]string{"not running", "candidate", "leader-elect", "leader"}

var outcomeNames = [...]string{"no answer", "acknowledged", "refused", "not sent"}

// text describes an event.
func (e *Event) text(t *Trace) string {
	name := "-"
	if e.Who >= 0 {
		name = t.Plans[e.Who].Name
	}
	text := fmt.Sprintf("%12.6f  %-4s %s", e.At.Seconds(), name, kindNames[e.Kind])
	switch w := e.Write; {
	case w != nil:
		text += " " + w.text(e.Kind)
	case e.Kind == Shows:
		text += " " + stateNames[e.State]
	case e.Fails:
		text += " nothing: no answer"
	case e.Kind == Reads, e.Kind == Changes, e.Kind == Rewinds:
		text += " " + e.Entry.text(t)
	}
	if e.Busy {
		text += ", while callbacks or work run"
	}
	return text
}

func (w *Write) text(k Kind) string {
	what := "a renewal"
	switch {
	case w.Deletes:
		what = "a deletion"
	case w.Releases:
		what = "a release"
	case w.Wins:
		what = "a write to win"
	}
	text := fmt.Sprintf("%s over %d, stand-down %v", what, w.Expect, w.Left)
	switch {
	case k == Serves && w.Accepted:
		text += fmt.Sprintf(": revision %d", w.Rev)
	case k == Serves:
		text += ": refused"
	case k == Receives:
		text += ": " + outcomeNames[w.Outcome]
		if w.Named {
			text += fmt.Sprintf(", last sequence %d", w.Last)
		}
	}
	return text
}

func (e *Entry) text(t *Trace) string {
	switch {
	case e == nil:
		return "nothing"
	case !e.Record && e.Expired:
		return fmt.Sprintf("the marker of an expiry in revision %d", e.Rev)
	case !e.Record:
		return fmt.Sprintf("the marker of a deletion in revision %d", e.Rev)
	}
	what, name := "record", "a stranger"
	if e.Release {
		what = "release"
	}
	if e.By >= 0 {
		name = t.Plans[e.By].Name
	}
	return fmt.Sprintf("the %s of %s in revision %d, stand-down %v", what, name, e.Rev, e.Left)
}

// Text returns the last events up to the given one, one to a line: those of its candidate, and all that changed the key.
func (t *Trace) Text(to, lines int) string {
	var all []string
	shown := State(-1)
	for i := 0; i <= to && i < len(t.Events); i++ {
		e := &t.Events[i]
		changes := e.Who < 0 || e.Kind == Serves && e.Write.Accepted
		if !changes && e.Who != t.Events[to].Who || e.Kind == Shows && e.State == shown && i < to {
			continue
		}
		if e.Kind == Shows {
			shown = e.State
		}
		all = append(all, e.text(t)+"\n")
	}
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// plans returns what a candidate is in the middle of.
func (p *possible) plans() string {
	switch {
	case p.awaits:
		return ", once it has the bucket's info"
	case p.resolving:
		return ", about to find out why its renewal was refused"
	}
	return ""
}

// said returns what a state says of a candidate, without all that is not the case.
func said(c *model.Cand) string {
	fields := strings.Fields(strings.Trim(fmt.Sprintf("%+v", *c), "{}"))
	return strings.Join(slices.DeleteFunc(fields, func(field string) bool {
		return strings.HasSuffix(field, ":0") || strings.HasSuffix(field, ":false")
	}), " ")
}

// problem says what the model has in place of an event.
func (r *replay) problem(e *Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the model has no such step: %s\n", e.text(r.trace))
	fmt.Fprintf(&b, "  the key: %+v\n", raw(r.key))
	if e.Who < 0 {
		return b.String()
	}
	for _, p := range r.followers[e.Who].states {
		fmt.Fprintf(&b, "  it may be: %v%v\n", said(&p.Cand), p.plans())
	}
	return b.String()
}
