package judge

import (
	"fmt"
	"time"

	"github.com/natscampaign/election"
)

// Judge compares what candidates do and report with the true state of the bucket, promise by promise.
type Judge struct {
	Failures []string                 // the promises that were broken, and how
	Longest  map[string]time.Duration // the longest allowed overlap of two leaders, by its excuse

	ttl      time.Duration // the shortest of the bucket
	longest  time.Duration
	now      time.Duration // the present one
	journal  *Journal
	tally    Tally
	ledgers  []*Ledger
	history  []Change
	named    bool // whether a refusal names the last sequence of the key
	resets   int
	rewinds  int
	removals int // by operators, resets and rewinds
	newest   election.Term
	newestAt time.Time // when newest was acquired
	overlaps []*overlap
	leader   *Ledger // the last
}

// New returns a judge of a bucket whose TTL is first the longest and never shorter than ttl. named is whether a refusal of its server names
// the last sequence of the key.
func New(ttl, longest time.Duration, named bool, journal *Journal, tally Tally) *Judge {
	return &Judge{ttl: ttl, longest: longest, now: longest, named: named, journal: journal, tally: tally, Longest: map[string]time.Duration{}}
}

// Fail records a broken promise, up to three of them.
func (j *Judge) Fail(at time.Time, promise, name, format string, a ...any) {
	if len(j.Failures) >= 3 {
		return
	}
	text := fmt.Sprintf(format, a...)
	j.journal.Add(Event{At: at, Name: name, What: "*** " + promise + ": " + text})
	j.Failures = append(j.Failures, fmt.Sprintf("%s: %s %s", promise, name, text))
}

// TTLChanged takes note that the bucket has another TTL.
func (j *Judge) TTLChanged(ttl time.Duration) { j.now = ttl }

// Failed reports whether a promise was broken.
func (j *Judge) Failed() bool { return len(j.Failures) > 0 }

// WasRemoved reports whether the key was ever removed by an operator, a reset or a rewind.
func (j *Judge) WasRemoved() bool { return j.removals > 0 }

// LostHistory reports whether the bucket was ever reset or rewound.
func (j *Judge) LostHistory() bool { return j.resets > 0 || j.rewinds > 0 }

// Add opens the ledger of a candidate.
func (j *Judge) Add(c Candidate) *Ledger {
	l := &Ledger{Candidate: c, ttl: j.ttl, longest: j.longest, known: map[termID]knowledge{}}
	j.ledgers = append(j.ledgers, l)
	return l
}

// Changed takes note of a change of the key.
func (j *Judge) Changed(m Change) {
	j.history = append(j.history, m)
	switch {
	case m.resets():
		j.resets++
		j.removals++
	case m.rewinds():
		j.rewinds++
		j.removals++
	case m.Kind == ByWrite && m.After.By() == nil && m.After.IsMarker():
		j.removals++
	}
	for _, l := range j.ledgers {
		j.noteRewind(l, m)
	}
	if l := m.Before.By(); l != nil && (m.After.By() != l || m.rewinds() || m.After.isLateReleaseOver(m.Before) || j.hitByChance(m)) {
		l.displacedAt = m.At
	}
}

// hitByChance reports whether a write hit a revision that it was not meant for: the bucket was reset or rewound while it was under way. Its writer, which
// has forgotten it, may take it for that of a copy.
func (j *Judge) hitByChance(m Change) bool {
	q := m.After.Write
	return q != nil && m.Kind == ByWrite && (j.resetBetween(q.Sent, m.At) || j.rewoundBetween(q.Sent, m.At))
}

// noteRewind notes whether a change rewinds the history in which a candidate holds the key, and whether its renewals would
// prove that from now on. A refusal that names a sequence always proves it. Otherwise only another candidate's record does
// that was written after the acquisition, because a lagging replica may return an earlier record, or none. To a candidate that does not know its
// connection a release is none.
func (j *Judge) noteRewind(l *Ledger, m Change) {
	var q *Write
	if m.After != nil {
		q = m.After.Write
	}
	switch {
	case q != nil && q.By == l && !m.rewinds():
		l.lastWrite, l.rewoundAt = q, time.Time{}
	case !m.rewinds() || l.lastWrite == nil:
	case q == l.lastWrite:
		l.rewoundAt = time.Time{}
	case l.rewoundAt.IsZero():
		l.rewoundAt = m.At
	}
	j.noteProvable(l, m)
}

// noteProvable notes whether renewals of the present term would prove the rewind, after the last change.
func (j *Judge) noteProvable(l *Ledger, m Change) {
	var q *Write
	if m.After != nil {
		q = m.After.Write
	}
	foreign := m.After.isForeign(l) && !m.After.IsMarker()
	unclear := l.Plain && q != nil && q.Copies && !foreign // a bare name does not tell who stored it
	shown := foreign && (l.Connected || !m.After.IsFree())
	switch {
	case l.rewoundAt.IsZero() || l.term == nil || unclear || !j.named && !(shown && m.After.Revision > l.term.win.Revision):
		l.provableSince = time.Time{}
	case l.provableSince.IsZero():
		l.provableSince = m.At
	}
}

// mustDiscoverBy returns when a connected leader must have found out that history was rewound over its last write, by its
// next renewal. It is zero if that renewal would not prove it.
func (j *Judge) mustDiscoverBy(l *Ledger) time.Time {
	if l.provableSince.IsZero() || !l.troubledUntil.Before(l.lastWrite.Sent) || l.NoRead && !j.named {
		return time.Time{}
	}
	return l.Clock.After(l.provableSince, l.Interval).Add(discovery)
}

// resetBetween reports whether the bucket was reset between two times, in any order.
func (j *Judge) resetBetween(a, b time.Time) bool { return j.countBetween(a, b, Change.resets) > 0 }

// rewoundBetween reports whether the history of the bucket was rewound between two times, in any order.
func (j *Judge) rewoundBetween(a, b time.Time) bool { return j.countBetween(a, b, Change.rewinds) > 0 }

func (j *Judge) countBetween(a, b time.Time, such func(Change) bool) (n int) {
	if b.Before(a) {
		a, b = b, a
	}
	for _, m := range j.history {
		if such(m) && !m.At.Before(a) && !m.At.After(b) {
			n++
		}
	}
	return n
}

// NextDeadline returns the instant after the next time limit of a leader; zero if there is none.
func (j *Judge) NextDeadline(now time.Time) (next time.Time) {
	for _, l := range j.ledgers {
		if l.heldTerm == nil {
			continue
		}
		for _, limit := range []time.Time{l.heldTerm.deadline, j.mustDiscoverBy(l)} {
			if at := limit.Add(1); at.After(now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// Finish ends the measurement of overlaps.
func (j *Judge) Finish(at time.Time) {
	for _, l := range j.ledgers {
		l.leads = false
	}
	j.measure(at)
}
