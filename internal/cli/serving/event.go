package serving

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/observe"
)

// The kinds of events that are no transitions of leadership.
const (
	kindPaused  = "paused"
	kindResumed = "resumed"
)

// event is an event of the history in the words of the page. All text in it is printable.
type event struct {
	at     time.Time
	kind   string // also a CSS class
	change string // in a few words
	text   string // in a sentence
	by     string // who evicted the leader; empty if that is not known
}

// transitionEvent returns the event for a transition of leadership.
func transitionEvent(e observe.Event) event {
	return event{at: e.At, kind: e.Kind.String(), change: look.DescribeChange(e), text: look.DescribeEvent(e), by: e.By}
}

// pausedEvent returns the event for a pause, which was noticed at the given time. The time and the operator are those of the pause, where it has them.
func pausedEvent(p kv.Pause, noticed time.Time) event {
	e := event{at: noticed, kind: kindPaused, change: kindPaused, text: "An operator paused the election"}
	if !p.Since.IsZero() && p.Since.Before(noticed) {
		e.at = p.Since
	}
	if p.By != "" {
		e.change, e.text = "paused by "+p.By, p.By+" paused the election"
	}
	return e
}

// resumedEvent returns the event for the end of a pause, which was noticed at the given time, and lasted when the page last read the pauses.
func resumedEvent(lasted, noticed time.Time) event {
	e := event{at: noticed, kind: kindResumed, change: kindResumed, text: "An operator resumed the election"}
	if unknown := noticed.Sub(lasted).Round(time.Second); unknown > 2*queryInterval { // nobody looked at the page meanwhile
		e.text += fmt.Sprintf(", up to %s earlier", terminal.FormatDuration(unknown))
	}
	return e
}

// isTransition reports whether the event is a transition of leadership.
func (e event) isTransition() bool { return e.kind != kindPaused && e.kind != kindResumed }

// insert returns the events, which are ordered by time, with another one. Transitions stay in the order in which they were observed. A pause comes
// after those of its second, as its time has no fraction.
func insert(events []event, e event) []event {
	after := len(events)
	for after > 0 && events[after-1].at.Truncate(time.Second).After(e.at) && !(e.isTransition() && events[after-1].isTransition()) {
		after--
	}
	return slices.Insert(events, after, e)
}

// lastTransition returns the last transition of leadership among the events; nil if there is none.
func lastTransition(events []event) *event {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].isTransition() {
			return &events[i]
		}
	}
	return nil
}
