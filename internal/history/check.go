package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Findings is what a run shows.
type Findings struct {
	Overlap   time.Duration // in which at least two believed that they led
	Overlaps  []Overlap
	Disorder  []string // terms that were believed in after a later one
	Misplaced []string // records after one of a later term, and numbers that are missing
	Changes   []Change
	Gaps      []Gap
}

// Overlap is a time in which two believed that they led.
type Overlap struct {
	Span
	A, B Belief
}

// Change is a change of leader, or of the term of one leader.
type Change struct {
	At       time.Duration // when the earlier term ended
	Old, New Belief
	Cause    string // the kind of fault, or what else it is put down to
	Unneeded bool   // whether the lease could have been renewed

	fault *Fault
}

// Gap is a time in which nobody believed.
type Gap struct {
	Span
	Kind  string        // the kind of fault that it is put down to
	Since time.Duration // what its length is measured from: the fault, or the end of the last outage
	Bound time.Duration
	Fault *Fault // nil if there was none
}

// Took returns how long it took until somebody led.
func (g Gap) Took() time.Duration { return g.To - g.Since }

// Late says whether that was too long.
func (g Gap) Late() bool { return g.Took() > g.Bound }

// Kinds of what a term's end is put down to that are no faults.
const (
	KindStart  = "start"
	KindOutage = "outage"
	KindNone   = "none"
)

// Check compares beliefs, records and faults. It changes nothing in r but the order of beliefs and faults.
func (r *Run) Check() *Findings {
	slices.SortStableFunc(r.Beliefs, func(a, b Belief) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	f := &Findings{}
	f.overlaps(r.Beliefs)
	f.terms(r.Beliefs)
	f.records(r.Records)
	f.changes(r)
	return f
}

// overlaps finds who believed at the same time as somebody else.
func (f *Findings) overlaps(beliefs []Belief) {
	counted := time.Duration(0) // up to where overlaps are summed up
	for i, b := range beliefs {
		for _, a := range beliefs[:i] {
			both := Span{From: b.From, To: min(a.To, b.To)}
			if a.Candidate == b.Candidate || both.To <= both.From {
				continue
			}
			f.Overlaps = append(f.Overlaps, Overlap{Span: both, A: a, B: b})
			if from := max(both.From, counted); both.To > from {
				f.Overlap += both.To - from
				counted = both.To
			}
		}
	}
}

// terms finds terms that began after a later one had begun.
func (f *Findings) terms(beliefs []Belief) {
	var latest Belief
	for _, b := range beliefs {
		if b.Token <= latest.Token {
			f.Disorder = append(f.Disorder, fmt.Sprintf("term %d of %s began after term %d of %s", b.Term, b.Candidate, latest.Term, latest.Candidate))
			continue
		}
		latest = b
	}
}

// records finds records that a deposed leader appended, and records that are missing.
func (f *Findings) records(records []Record) {
	var latest Record
	for _, x := range records {
		switch {
		case x.Token < latest.Token:
			f.Misplaced = append(f.Misplaced, fmt.Sprintf("record %d of the stream, number %d of %s under %s, comes after one of %s under %s",
				x.Sequence, x.Number, x.Candidate, x.Token, latest.Candidate, latest.Token))
			continue
		case x.Token == latest.Token && x.Number != latest.Number+1, x.Token != latest.Token && x.Number != 0:
			f.Misplaced = append(f.Misplaced, fmt.Sprintf("record %d of the stream is number %d of %s under %s, which is not the next one",
				x.Sequence, x.Number, x.Candidate, x.Token))
		}
		latest = x
	}
}

// changes finds changes of leader and the times without one between them.
func (f *Findings) changes(r *Run) {
	old := Belief{To: r.From}
	for _, b := range r.Beliefs {
		if b.From > r.To {
			break
		}
		c := Change{At: old.To, Old: old, New: b, Cause: KindStart}
		if old.Candidate != "" {
			c.Cause, c.fault, c.Unneeded = r.cause(old)
			f.Changes = append(f.Changes, c)
		}
		f.gap(r, c, b.From)
		if b.To >= old.To {
			old = b
		}
	}
	if old.To < r.To { // nobody leads at the end
		c := Change{At: old.To, Old: old, Cause: KindStart}
		if old.Candidate != "" {
			c.Cause, c.fault, _ = r.cause(old)
		}
		if g := r.gap(c, r.To); g.Late() {
			f.Gaps = append(f.Gaps, g)
		}
	}
}

func (f *Findings) gap(r *Run, c Change, to time.Duration) {
	if to > c.At {
		f.Gaps = append(f.Gaps, r.gap(c, to))
	}
}

// gap measures the time without a leader after a change. It counts from the last thing that stood in the way: the fault,
// another within the gap, or the end of an outage, after which the bound is a larger one. So it is after forged notifications.
func (r *Run) gap(c Change, to time.Duration) Gap {
	g := Gap{Span: Span{From: c.At, To: to}, Kind: c.Cause, Since: c.At, Bound: r.Timing.Bound(), Fault: c.fault}
	if c.fault != nil {
		g.Since = min(c.fault.From, c.At)
		switch {
		case c.fault.Releases:
			g.Bound = Release
		case c.fault.Renews: // the key expires one TTL after a renewal that came up to one interval after the fault
			g.Bound += r.Timing.Interval
		}
	}
	for i := range r.Faults {
		if x := &r.Faults[i]; x != c.fault && x.Candidate != "" && x.From > c.At && x.From < to {
			g.Since, g.Bound = max(g.Since, x.From), max(g.Bound, r.Timing.Bound())
		}
	}
	for _, o := range r.Outages {
		if o.To > g.From-r.Timing.TTL && o.From < to { // one that ended before the lease did may have cost it all the same
			g.Since, g.Bound = max(g.Since, min(o.To, to)), r.Timing.OutageBound()
		}
	}
	for _, x := range r.Forged {
		if x.From < to && x.To > g.From-Misled*r.Timing.TTL {
			g.Bound += r.Timing.TTL
			break
		}
	}
	return g
}

// cause finds what a term's end is put down to, and whether it was unneeded: none of the faults that end a term at once
// hit the leader, and between the moment at which its last renewal was due and its deadline there was a contiguous half
// of the time in which neither a fault on the leader nor an outage of the bucket kept it from renewing.
func (r *Run) cause(old Belief) (kind string, fault *Fault, unneeded bool) {
	window := Span{From: old.Deadline - r.Timing.room(), To: old.Deadline}
	busy := slices.Clone(r.Outages)
	longest := time.Duration(0)
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.Ends && f.hits(old.Candidate) && f.From >= old.From && f.From <= old.To+endsWithin {
			return f.Kind, f, false
		}
		if !f.hits(old.Candidate) || f.Ends {
			continue
		}
		busy = append(busy, f.Span)
		if o := f.overlap(window); o > longest {
			kind, fault, longest = f.Kind, f, o
		}
	}
	if longestFree(window, busy) >= r.Timing.room()/2 || old.Reason != "" && old.Reason != reasonDeadline {
		return KindNone, nil, true
	}
	if fault == nil {
		kind, fault = r.outage(window)
	}
	return kind, fault, false
}

// endsWithin is how much later than the end of a belief the fault that ended it may be written down to have begun.
const endsWithin = 100 * time.Millisecond

// reasonDeadline is the election's word for a lease that ran out.
const reasonDeadline = "deadline"

// outage finds the fault of servers behind an outage of the bucket within the window: of those at the time the one that
// lasted for most of it.
func (r *Run) outage(window Span) (string, *Fault) {
	var found *Fault
	most := time.Duration(0)
	for _, o := range r.Outages {
		if o.overlap(window) <= 0 {
			continue
		}
		for i := range r.Faults {
			f := &r.Faults[i]
			if f.Candidate != "" || f.From > o.To || o.From-f.To > Reconnect {
				continue
			}
			if both := f.overlap(o); found == nil || both > most {
				found, most = f, both
			}
		}
	}
	if found == nil {
		return KindOutage, nil
	}
	return found.Kind, found
}
