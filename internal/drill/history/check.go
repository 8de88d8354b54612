package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Findings are the results of a check.
type Findings struct {
	Overlaps  []Overlap
	Worked    []Overlap // times in which the work of two candidates ran
	Disorder  []string  // terms that began after a later one
	Misplaced []string  // records after a record of a later term, and missing numbers
	Changes   []Change
	Gaps      []Gap
}

// Overlap is a time in which two candidates considered themselves leader, or worked.
type Overlap struct {
	Span
	A, B Belief
}

// Change is a change of leader, or of the term of one leader.
type Change struct {
	At       time.Duration // when the earlier term ended
	Old, New Belief
	Cause    string // a kind of fault, or one of the Kind constants
	Unneeded bool   // the lease could have been renewed

	fault *Fault
}

// Gap is a time in which no candidate considered itself leader.
type Gap struct {
	Span
	Kind  string        // of the fault that caused it, or one of the Kind constants
	Since time.Duration // the start of the measurement: the fault, or the end of the last outage
	Bound time.Duration
	Fault *Fault // nil if there was none
}

// Took returns how long it took until a candidate led.
func (g Gap) Took() time.Duration { return g.To - g.Since }

// Late reports whether that was too long.
func (g Gap) Late() bool { return g.Took() > g.Bound }

// Causes of a term's end that are not faults.
const (
	KindStart  = "start"
	KindOutage = "outage"
	KindNone   = "none"
)

// Check compares beliefs, records and faults. It sorts the beliefs and faults of r.
func (r *Run) Check() *Findings {
	slices.SortStableFunc(r.Beliefs, func(a, b Belief) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(r.Works, func(a, b Belief) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	f := &Findings{}
	f.Overlaps, f.Worked = overlaps(r.Beliefs), overlaps(r.Works)
	f.terms(r.Beliefs)
	f.records(r.Records)
	f.changes(r)
	return f
}

// overlaps finds beliefs of different candidates at the same time.
func overlaps(beliefs []Belief) (found []Overlap) {
	for i, b := range beliefs {
		for _, a := range beliefs[:i] {
			both := Span{From: b.From, To: min(a.To, b.To)}
			if a.Candidate != b.Candidate && both.To > both.From {
				found = append(found, Overlap{Span: both, A: a, B: b})
			}
		}
	}
	return found
}

// terms finds terms that began after a later term.
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

// records finds records that a deposed leader appended, and missing records.
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

// changes finds changes of leader and the times without a leader between them.
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
	if old.To < r.To { // no candidate leads at the end
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

// gap measures the time without a leader after a change. It counts from the last obstacle: the fault, another fault within
// the gap, or the end of an outage or repair. After these and after forged notifications the bound is larger.
func (r *Run) gap(c Change, to time.Duration) Gap {
	g := Gap{Span: Span{From: c.At, To: to}, Kind: c.Cause, Since: c.At, Bound: r.Timing.Bound(), Fault: c.fault}
	if c.fault != nil {
		g.Since = min(c.fault.From, c.At)
		switch {
		case c.fault.Releases:
			g.Bound = Release
		case c.fault.Renews: // the last renewal may arrive up to one interval after the fault
			g.Bound += r.Timing.Interval
		}
	}
	for i := range r.Faults {
		if x := &r.Faults[i]; x != c.fault && x.Candidate != "" && x.From > c.At && x.From < to {
			g.Since, g.Bound = max(g.Since, x.From), max(g.Bound, r.Timing.Bound())
		}
	}
	for _, o := range r.Outages {
		if o.To > g.From-r.Timing.TTL && o.From < to { // an outage that ended before the lease did may have cost it all the same
			g.Since, g.Bound = max(g.Since, min(o.To, to)), r.Timing.OutageBound()
		}
	}
	for _, o := range r.Repairs {
		if o.To > g.From-r.Timing.TTL && o.From < to {
			g.Since, g.Bound = max(g.Since, min(o.To, to)), r.Timing.OutageBound()+r.Timing.TTL
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

// cause finds the cause of a term's end, and whether the end was unneeded. It was unneeded if no fault that ends a term at
// once hit the leader, and the leader could have renewed: from the time at which its last renewal was due to its deadline,
// one uninterrupted half was free of faults on the leader, of outages of the bucket and of repairs. A term that lasts for a TTL longer than a fault that
// ends terms is one that the fault left alone: a rewind ends only the sessions of which the bucket forgets a renewal.
func (r *Run) cause(old Belief) (kind string, fault *Fault, unneeded bool) {
	window := Span{From: old.Deadline - r.Timing.room(), To: old.Deadline}
	blocked := slices.Concat(r.Outages, r.Repairs)
	longest := time.Duration(0)
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.Ends && f.hits(old.Candidate) && f.From >= old.From && f.From <= old.To+BeliefEndTolerance && old.To <= f.To+r.Timing.TTL {
			return f.Kind, f, false
		}
		if !f.hits(old.Candidate) || f.Ends {
			continue
		}
		blocked = append(blocked, f.Span)
		if o := f.overlap(window); o > longest {
			kind, fault, longest = f.Kind, f, o
		}
	}
	if longestFree(window, blocked) >= r.Timing.room()/2 || old.Reason != "" && old.Reason != reasonDeadline {
		return KindNone, nil, true
	}
	if fault == nil {
		kind, fault = r.outage(window)
	}
	return kind, fault, false
}

// BeliefEndTolerance is how much later than the recorded end of a belief the candidate may still have considered itself leader, and so how
// much later the recorded start of the fault that ended the belief may be.
const BeliefEndTolerance = 100 * time.Millisecond

// reasonDeadline is the library's reason for a lease that ran out.
const reasonDeadline = "deadline"

// outage finds the fault of servers that caused an outage of the bucket, or a repair, within the window: the one that overlaps that
// most.
func (r *Run) outage(window Span) (string, *Fault) {
	var found *Fault
	most := time.Duration(0)
	for _, o := range slices.Concat(r.Outages, r.Repairs) {
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
