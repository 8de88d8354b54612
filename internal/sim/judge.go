package sim

import (
	"fmt"
	"time"

	"github.com/natscampaign/election"
)

// judge compares what candidates do and report with the true state of the bucket, promise by promise.
type judge struct {
	ttl      time.Duration
	journal  *journal
	tally    tally
	ledgers  []*ledger
	history  []change
	named    bool // whether a refusal names the last sequence of the key
	resets   int
	rewinds  int
	removals int // by operators, resets and rewinds
	newest   election.Term
	newestAt time.Time // when newest was acquired
	failures []string

	overlaps []*overlap
	longest  map[string]time.Duration // the longest allowed overlap, by its excuse
	leader   *ledger                  // the last
}

func newJudge(ttl time.Duration, journal *journal, tally tally) *judge {
	return &judge{ttl: ttl, journal: journal, tally: tally, longest: map[string]time.Duration{}}
}

// fail records a broken promise, up to three of them.
func (j *judge) fail(at time.Time, promise, name, format string, a ...any) {
	if len(j.failures) >= 3 {
		return
	}
	text := fmt.Sprintf(format, a...)
	j.journal.add(event{at: at, name: name, what: "*** " + promise + ": " + text})
	j.failures = append(j.failures, fmt.Sprintf("%s: %s %s", promise, name, text))
}

// add opens the ledger of a candidate.
func (j *judge) add(name string, p *plan) *ledger {
	l := &ledger{
		name: name, ttl: j.ttl, margin: p.marginOf(j.ttl), standDown: p.standDownOf(j.ttl), interval: p.intervalOf(j.ttl),
		plain: p.plain, noRead: p.noRead,
	}
	j.ledgers = append(j.ledgers, l)
	return l
}

// changed takes note of a change of the key.
func (j *judge) changed(m change) {
	j.history = append(j.history, m)
	switch {
	case m.resets():
		j.resets++
		j.removals++
	case m.rewinds():
		j.rewinds++
		j.removals++
	case m.kind == byWrite && m.after.by() == nil && m.after.isMarker():
		j.removals++
	}
	for _, l := range j.ledgers {
		j.noteRewind(l, m)
	}
	if l := m.before.by(); l != nil && (m.after.by() != l || m.rewinds() || m.after.isLateReleaseOver(m.before)) {
		l.displacedAt = m.at
	}
}

// noteRewind notes whether a change rewinds the history in which a candidate holds the key, and whether its renewals would
// prove that from now on. A refusal that names a sequence always proves it. Otherwise only another candidate's record does
// that was written after the acquisition, because a lagging replica may return an earlier record, or none.
func (j *judge) noteRewind(l *ledger, m change) {
	var q *write
	if m.after != nil {
		q = m.after.write
	}
	switch {
	case q != nil && q.by == l && !m.rewinds():
		l.lastWrite, l.rewoundAt = q, time.Time{}
	case !m.rewinds() || l.lastWrite == nil:
	case q == l.lastWrite:
		l.rewoundAt = time.Time{}
	case l.rewoundAt.IsZero():
		l.rewoundAt = m.at
	}
	foreign := q != nil && q.by != l && !m.after.isMarker()
	switch {
	case l.rewoundAt.IsZero() || l.term == nil || !j.named && !(foreign && m.after.revision > l.term.win.revision):
		l.provableSince = time.Time{}
	case l.provableSince.IsZero():
		l.provableSince = m.at
	}
}

// mustDiscoverBy returns when a connected leader must have found out that history was rewound over its last write, by its
// next renewal. It is zero if that renewal would not prove it.
func (j *judge) mustDiscoverBy(l *ledger) time.Time {
	if l.provableSince.IsZero() || !l.troubledUntil.Before(l.lastWrite.sent) || l.noRead && !j.named {
		return time.Time{}
	}
	return l.provableSince.Add(l.interval + discovery)
}

// resetBetween reports whether the bucket was reset between two times, in any order.
func (j *judge) resetBetween(a, b time.Time) bool { return j.countBetween(a, b, change.resets) > 0 }

// rewoundBetween reports whether the history of the bucket was rewound between two times, in any order.
func (j *judge) rewoundBetween(a, b time.Time) bool { return j.countBetween(a, b, change.rewinds) > 0 }

func (j *judge) countBetween(a, b time.Time, such func(change) bool) (n int) {
	if b.Before(a) {
		a, b = b, a
	}
	for _, m := range j.history {
		if such(m) && !m.at.Before(a) && !m.at.After(b) {
			n++
		}
	}
	return n
}

// nextDeadline returns the instant after the next time limit of a leader; zero if there is none.
func (j *judge) nextDeadline(now time.Time) (next time.Time) {
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

// finish ends the measurement of overlaps.
func (j *judge) finish() {
	for _, l := range j.ledgers {
		l.leads = false
	}
	j.measure(time.Now())
}
