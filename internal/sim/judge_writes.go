package sim

import (
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// writeSent judges a write that a candidate sends. P3: callbacks and work return before a release. P2: a leader-elect that
// releases the key passes on the rest of its stand-down.
func (j *judge) writeSent(q *write, at time.Time) {
	l, t := q.by, q.by.term
	if l.notified != nil {
		q.notified, q.notifiedAt, q.notifiedPrevious = l.notified()
	}
	q.read = l.lastRead
	if l.renews(q) && !t.mayLead {
		q.standDownLeft, q.sawRemoval = t.counts.Sub(at), t.sawRemoval
	}
	if !q.givesUp() {
		return
	}
	if t != nil {
		t.over = true
	}
	switch {
	case l.reports.IsLeader():
		j.fail(at, "P3", l.name, "releases the key while it leads")
	case l.working > 0:
		j.fail(at, "P3", l.name, "releases the key before its work has returned")
	case l.won != l.lost, l.callback != "" && t != nil && t.reported: // an acquisition that is abandoned at once has no callbacks
		j.fail(at, "P3", l.name, "releases the key before its callbacks have returned (running: %q, OnWon %d, OnLost %d)", l.callback, l.won, l.lost)
	}
	if q.remove || t == nil || t.mayLead {
		return
	}
	if !l.mayEnd {
		l.abandonedAt = at
	}
	if l.plain && j.chanceHit(t.win) != "" {
		return // after a reset, a bare name does not tell an acquisition from a renewal of another's record
	}
	left := time.Duration(q.content.StandDownMs) * time.Millisecond
	if due := t.counts.Sub(at); left < due {
		j.fail(at, "P2", l.name, "releases the key as leader-elect and passes on %v of its stand-down, of which %v is left", left, due)
	}
}

// writeRefused takes note of the last sequence that a refusal names. P11: a lower sequence than a renewal demanded proves that
// its writer lost the key.
func (j *judge) writeRefused(q *write, last uint64, at time.Time) {
	if l := q.by; l.renews(q) && 0 < last && last < q.expect {
		l.disprovedAt = at
	}
}

// keyRead takes note of the record that a candidate read. P11: another candidate's record whose revision lies between the
// acquisition and the last write of a candidate proves that the candidate lost the key.
func (j *judge) keyRead(l *ledger, e *entry, at time.Time) {
	l.lastRead = e
	foreign := e.write != nil && e.write.by != l
	if t := l.term; t != nil && !t.over && foreign && t.win.revision < e.revision && e.revision < l.revision {
		l.disprovedAt = at
	}
}

// statusRequested takes note that a candidate requests the state of the bucket.
func (j *judge) statusRequested(l *ledger, at time.Time) {
	l.statusAt = at
	if l.term != nil && at.Equal(l.term.renewedAt) {
		l.term.statusRead = true
	}
}

// wonAndLed counts acquisitions from which leadership counted: over releases that named their winners.
const wonAndLed = "won over a release that names the winner"

// writeKnown takes note that a candidate knows that its own write was applied: it was acknowledged, or the candidate read it.
func (j *judge) writeKnown(q *write, at time.Time) {
	if !q.knownAt.IsZero() && !q.acknowledged.Equal(at) {
		return
	}
	l := q.by
	first := q.knownAt.IsZero()
	if first {
		q.knownAt = at
		if !q.remove {
			defer func() { l.revision = q.revision }()
		}
	}
	switch {
	case q.givesUp():
	case l.acquires(q) && !q.acknowledged.IsZero():
		standDown, sawRemoval := l.requiredStandDown(q)
		deadline := l.deadlineOf(q)
		l.term = &term{
			win: q, counts: at.Add(standDown), sawRemoval: sawRemoval, deadline: deadline, lastDeadline: deadline, renewedAt: at,
			mayLead: standDown == 0 && l.isNamed(q),
		}
		if l.term.mayLead {
			j.tally[wonAndLed]++
		}
		l.mayEnd = false
		l.disprovedAt = time.Time{}
		j.tally["key acquired"]++
	case first && l.renews(q) && at.Before(l.term.deadline):
		t := l.term
		t.lastDeadline, t.renewedAt, t.statusRead = t.deadline, at, false
		t.deadline = timeutil.Later(l.deadlineOf(q), t.deadline)
		t.mayLead = t.mayLead || !q.sent.Before(t.counts)
	}
}
