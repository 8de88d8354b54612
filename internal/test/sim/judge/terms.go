package judge

import (
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/timeutil"
)

// Observe judges what each candidate reports now, and returns whether any leads.
func (j *Judge) Observe(at time.Time) (led bool) {
	for _, l := range j.ledgers {
		if l.crashed || l.Reports == nil {
			l.leads, l.heldTerm = false, nil
			continue
		}
		reported, leads := l.Reports.Term()
		state := l.Reports.State()
		led = led || leads
		was := l.leads && l.reportedTerm == reported
		l.reportedTerm, l.leads = reported, leads
		if leads {
			j.judgeLeader(l, at, was)
		}
		if l.working > 0 && l.workValid() && !(leads && reported == l.workTerm) {
			j.Fail(at, "P1", l.Name, "does not lead in term %d, which is valid", l.workTerm.Number)
		}
		holds := state == election.LeaderElectState || state == election.LeaderState
		if l.heldTerm != nil && !holds {
			j.judgeEnd(l, at)
		}
		l.heldTerm = nil
		if holds && l.term != nil {
			l.heldTerm, l.term.reported = l.term, true
		}
	}
	j.measure(at)
	return led
}

// judgeLeader judges a candidate that reports that it leads. P1: not after its deadline. P2: after its stand-down, while
// nobody else leads. P5: with a larger token than all before. P7: by an acquisition that was acknowledged. P11: not after
// proof of loss. was: it already led at the last check.
func (j *Judge) judgeLeader(l *Ledger, at time.Time, was bool) {
	t, number := l.term, l.reportedTerm.Number
	switch {
	case t == nil || t.win.Revision != number:
		j.Fail(at, "P7", l.Name, "leads in term %d, which no acknowledged acquisition began", number)
	case !at.Before(t.deadline):
		j.Fail(at, "P1", l.Name, "leads although its lease ended %v ago", at.Sub(t.deadline))
	case !t.mayLead:
		j.Fail(at, "P2", l.Name, "leads without a renewal sent after its stand-down, which ends in %v", t.counts.Sub(at))
	case !l.running:
		j.Fail(at, "P7", l.Name, "leads although it does not run")
	case !l.sawClosedAt.IsZero() && at.After(l.sawClosedAt):
		j.Fail(at, closedPromise, l.Name, "leads although a write failed because its connection is closed")
	}
	switch limit := j.mustDiscoverBy(l); {
	case !l.disprovedAt.IsZero() && at.After(l.disprovedAt):
		j.Fail(at, "P11", l.Name, "leads in term %d although it received proof %v ago that it lost the key", number, at.Sub(l.disprovedAt))
	case !limit.IsZero() && at.After(limit):
		j.Fail(at, "P11", l.Name, "leads in term %d, which a renewal would have disproved since history was rewound %v ago", number, at.Sub(l.rewoundAt))
	}
	if was || len(j.Failures) > 0 {
		return
	}
	j.tally["term led"]++
	if j.leader != nil && j.leader != l {
		j.tally["failover"]++
	}
	j.leader = l
	j.journal.Add(Event{At: at, Name: l.Name, What: "leads in term", A: number})
	j.judgeToken(l, at)
	for _, other := range j.ledgers {
		if other != l && other.leads && !other.crashed && other.Reports.IsLeader() {
			j.judgeOverlap(other, l, at)
		}
	}
}

// judgeToken judges the token of a new term: tokens grow in the order of acquisitions. They need not grow across a reset or a
// rewind, nor for a winner that still takes the bucket for the one before it was recreated.
func (j *Judge) judgeToken(l *Ledger, at time.Time) {
	win, reported := l.term.win, l.reportedTerm
	order, later := reported.Compare(j.newest), !win.Applied.Before(j.newestAt)
	outdated := reported.BucketCreated.Before(win.BucketCreated)
	switch {
	case order > 0 && later, order < 0 && !later: // the latter was acquired before a term that led first
	case outdated, j.resetBetween(win.Applied, j.newestAt), j.rewoundBetween(win.Applied, j.newestAt):
		j.tally["allowed: tokens after a reset"]++
	default:
		j.Fail(at, "P5", l.Name, "leads in term %s beside or after term %s", reported.Token(), j.newest.Token())
	}
	if later && !outdated {
		j.newest, j.newestAt = reported, win.Applied
	}
}

// leastEnd returns the earliest end of a lease that a write earned which was sent at the given time: before its deadline where the candidate may have
// learned of a shorter TTL.
func (j *Judge) leastEnd(l *Ledger, sent, deadline time.Time) time.Time {
	if j.longest > j.ttl {
		return timeutil.Earlier(deadline, l.Clock.After(sent, j.ttl-l.Margin))
	}
	return deadline
}

// judgeEnd judges a candidate that holds the key no longer. P6: it had a reason.
func (j *Judge) judgeEnd(l *Ledger, at time.Time) {
	t := l.heldTerm
	t.over = t.over || !l.mayEnd // a candidate that stops renews until its work has returned
	before := j.leastEnd(l, t.lastSent, t.lastDeadline)
	reason := ""
	switch {
	case l.mayEnd:
		reason = "asked to"
	case !l.displacedAt.Before(t.win.Applied):
		reason = "key lost"
	case !at.Before(j.leastEnd(l, t.sent, t.deadline)):
		reason = "deadline"
	case !at.Before(before) && (t.statusRead || !t.renewedAt.Before(before)):
		// The last renewal was acknowledged too late, or the candidate read the bucket's state before it counted.
		reason = "deadline"
	case j.resets > 0 && !l.statusAt.Before(t.renewedAt):
		// Neither the candidate nor its predecessor had noticed that the bucket was recreated. Its state has shown that now.
		reason = "bucket recreated"
	case !l.closedAt.IsZero():
		reason = "connection closed"
	default:
		j.Fail(at, "P6", l.Name, "gives up term %d although it holds the key, and the lease lasts for %v", t.win.Revision, t.deadline.Sub(at))
	}
	if reason != "" {
		j.tally["term ended: "+reason]++
	}
	j.journal.Add(Event{At: at, Name: l.Name, What: "no longer holds the key"})
}
