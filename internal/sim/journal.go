package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// event is one line of a journal. It is formatted only if the schedule fails.
type event struct {
	at   time.Time
	name string // of a candidate; empty for the server, operators and the simulator
	what string
	a, b uint64 // mostly revisions; 0 for none
	d    time.Duration
	note string
}

// orNothing completes an event whose revision is 0.
func orNothing(revision uint64) string {
	if revision == 0 {
		return " nothing"
	}
	return ""
}

// journal is what happened in a schedule, in order.
type journal struct {
	began  time.Time
	events []event
}

func (j *journal) add(e event) { j.events = append(j.events, e) }

// String returns one line per event.
func (j *journal) String() string {
	var b strings.Builder
	for _, e := range j.events {
		name := e.name
		if name == "" {
			name = "-"
		}
		fmt.Fprintf(&b, "%14.6f  %-4s %s", e.at.Sub(j.began).Seconds(), name, e.what)
		if e.a != 0 {
			fmt.Fprintf(&b, " %d", e.a)
		}
		if e.b != 0 {
			fmt.Fprintf(&b, " → %d", e.b)
		}
		if e.d != 0 {
			fmt.Fprintf(&b, " %v", e.d)
		}
		if e.note != "" {
			fmt.Fprintf(&b, "  %s", e.note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// tally counts occurrences by name.
type tally map[string]int

func (t tally) add(other tally) {
	for name, n := range other {
		t[name] += n
	}
}

// String returns one line per name, in alphabetical order.
func (t tally) String() string {
	names := make([]string, 0, len(t))
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "  %-28s %d\n", name, t[name])
	}
	return b.String()
}
