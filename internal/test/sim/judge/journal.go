package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is one line of a journal. It is formatted only if the schedule fails.
type Event struct {
	At   time.Time
	Name string // of a candidate; empty for the server, operators and the simulator
	What string
	A, B uint64 // mostly revisions; 0 for none
	D    time.Duration
	Note string
}

// OrNothing completes an event whose revision is 0.
func OrNothing(revision uint64) string {
	if revision == 0 {
		return " nothing"
	}
	return ""
}

// Journal is what happened in a schedule, in order.
type Journal struct {
	Began  time.Time
	Events []Event
}

// Add adds an event, which is the last.
func (j *Journal) Add(e Event) { j.Events = append(j.Events, e) }

// String returns one line per event.
func (j *Journal) String() string {
	var b strings.Builder
	for _, e := range j.Events {
		name := e.Name
		if name == "" {
			name = "-"
		}
		fmt.Fprintf(&b, "%14.6f  %-4s %s", e.At.Sub(j.Began).Seconds(), name, e.What)
		if e.A != 0 {
			fmt.Fprintf(&b, " %d", e.A)
		}
		if e.B != 0 {
			fmt.Fprintf(&b, " → %d", e.B)
		}
		if e.D != 0 {
			fmt.Fprintf(&b, " %v", e.D)
		}
		if e.Note != "" {
			fmt.Fprintf(&b, "  %s", e.Note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Tally counts occurrences by name.
type Tally map[string]int

// Add adds the counts of another tally.
func (t Tally) Add(other Tally) {
	for name, n := range other {
		t[name] += n
	}
}

// String returns one line per name, in alphabetical order.
func (t Tally) String() string {
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
