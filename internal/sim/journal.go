package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// event is one line of a schedule's timeline. It is kept small and without formatting: only a schedule that fails is told.
type event struct {
	at   time.Time
	who  string // a candidate; empty for the server and its operators
	what string
	a, b uint64 // revisions, mostly; 0 for none
	d    time.Duration
	note string
}

// journal remembers what happened in a schedule, in order.
type journal struct {
	began  time.Time
	events []event
}

func (j *journal) add(e event) { j.events = append(j.events, e) }

// String returns the timeline.
func (j *journal) String() string {
	var b strings.Builder
	for _, e := range j.events {
		who := e.who
		if who == "" {
			who = "-"
		}
		fmt.Fprintf(&b, "%14.6f  %-4s %s", e.at.Sub(j.began).Seconds(), who, e.what)
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

// tally counts things by name.
type tally map[string]int

func (t tally) add(other tally) {
	for name, n := range other {
		t[name] += n
	}
}

// String returns one line per name, in order.
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
