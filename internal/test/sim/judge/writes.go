package judge

import (
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// WriteSent judges a write that a candidate sends. P3: callbacks and work return before a release. P2: a leader-elect that
// releases the key passes on the rest of its stand-down.
func (j *Judge) WriteSent(q *Write, at time.Time) {
	l, t := q.By, q.By.term
	if l.Notified != nil {
		q.notified, q.notifiedAt, q.notifiedPrevious = l.Notified()
	}
	q.read, q.readRemoval, q.gapAt = l.lastRead, l.readRemoval, l.gapAt
	if l.renews(q) && !t.mayLead {
		q.standDownLeft, q.sawRemoval = l.Clock.Left(at, t.counts), t.sawRemoval
	}
	if !q.givesUp() {
		return
	}
	if t != nil {
		t.over = true
	}
	switch {
	case l.Reports.IsLeader():
		j.Fail(at, "P3", l.Name, "releases the key while it leads")
	case l.working > 0:
		j.Fail(at, "P3", l.Name, "releases the key before its work has returned")
	case l.won != l.lost, l.callback != "" && t != nil && t.reported: // an acquisition that is abandoned at once has no callbacks
		j.Fail(at, "P3", l.Name, "releases the key before its callbacks have returned (running: %q, OnWon %d, OnLost %d)", l.callback, l.won, l.lost)
	}
	if q.Remove || t == nil || t.mayLead {
		return
	}
	if !l.mayEnd {
		l.abandonedAt = at
	}
	if l.Plain && j.chanceHit(t.win) != "" {
		return // after a reset, a bare name does not tell an acquisition from a renewal of another's record
	}
	left := time.Duration(q.Content.StandDownMs) * time.Millisecond
	if due := l.Clock.Left(at, t.counts); left < due {
		j.Fail(at, "P2", l.Name, "releases the key as leader-elect and passes on %v of its stand-down, of which %v is left", left, due)
	}
}

// WriteRefused takes note of the last sequence that a refusal names. P11: a lower sequence than a renewal demanded proves that
// its writer lost the key.
func (j *Judge) WriteRefused(q *Write, last uint64, at time.Time) {
	if l := q.By; l.renews(q) && 0 < last && last < q.Expect {
		l.disprovedAt = at
	}
}

// KeyRead takes note of the record that a candidate read. P11: another candidate's record whose revision lies between the
// acquisition and the last write of a candidate proves that the candidate lost the key.
func (j *Judge) KeyRead(l *Ledger, e *Entry, at time.Time) {
	l.lastRead, l.readRemoval = e, nil
	if q := e.Write; q != nil && !q.Releases() {
		k := l.known[q.Content.termOf()]
		if k.since.IsZero() {
			k.since = at
		}
		k.lease = max(k.lease, q.Content.lease())
		l.known[q.Content.termOf()], l.lastHeld = k, q.Content.termOf()
	}
	if t := l.term; t != nil && !t.over && e.isForeign(l) && t.win.Revision < e.Revision && e.Revision < l.revision {
		l.disprovedAt = at
	}
}

// RemovalRead takes note that a candidate read that somebody had removed the key.
func (j *Judge) RemovalRead(l *Ledger, e *Entry) {
	if t := l.term; t == nil || t.over { // a holder learns of its loss by it, or nothing
		l.readRemoval = e
	}
}

// StatusRequested takes note that a candidate requests the state of the bucket.
func (j *Judge) StatusRequested(l *Ledger, at time.Time) {
	l.statusAt = at
	if l.term != nil && at.Equal(l.term.renewedAt) {
		l.term.statusRead = true
	}
}

// WonAndLed counts acquisitions from which leadership counted: over releases that named their winners.
const WonAndLed = "won over a release that names the winner"

// WriteKnown takes note that a candidate knows that its own write was applied: it was acknowledged, or the candidate read it.
func (j *Judge) WriteKnown(q *Write, at time.Time) {
	if !q.knownAt.IsZero() && !q.Acknowledged.Equal(at) {
		return
	}
	l := q.By
	first := q.knownAt.IsZero()
	if first {
		q.knownAt = at
		if !q.Remove {
			l.readRemoval = nil
			defer func() { l.revision = q.Revision }()
			l.lastHeld = q.Content.termOf()
		}
	}
	switch {
	case q.givesUp():
	case l.acquires(q) && !q.Acknowledged.IsZero():
		standDown, sawRemoval := l.requiredStandDown(q)
		deadline := l.deadlineOf(q)
		l.term = &term{
			win: q, counts: l.Clock.After(at, standDown), sawRemoval: sawRemoval, deadline: deadline, lastDeadline: deadline, renewedAt: at, sent: q.Sent, lastSent: q.Sent,
			mayLead: standDown == 0 && l.isNamed(q),
		}
		if l.term.mayLead {
			j.tally[WonAndLed]++
		}
		l.mayEnd = false
		l.disprovedAt = time.Time{}
		if n := len(j.history); n > 0 { // what has been stored since the write was applied proves something of this term, or nothing
			j.noteProvable(l, j.history[n-1])
		}
		j.tally["key acquired"]++
		if q.takesOverLapsed() {
			j.tally["lapsed lease taken over"]++
		}
	case first && l.renews(q) && at.Before(l.term.deadline):
		t := l.term
		t.lastDeadline, t.lastSent, t.renewedAt, t.sent, t.statusRead = t.deadline, t.sent, at, q.Sent, false
		t.deadline = timeutil.Later(l.deadlineOf(q), t.deadline)
		t.mayLead = t.mayLead || !q.Sent.Before(t.counts)
	}
}
