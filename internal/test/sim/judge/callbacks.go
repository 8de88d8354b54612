package judge

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/timeutil"
)

// CallbackBegan judges the beginning of a callback. P4: callbacks alternate and never overlap, and OnLost begins by the
// deadline.
func (j *Judge) CallbackBegan(l *Ledger, name string, at time.Time) {
	if l.callback != "" {
		j.Fail(at, "P4", l.Name, "%s is called while %s runs", name, l.callback)
	}
	switch name {
	case "OnWon":
		if l.won != l.lost {
			j.Fail(at, "P4", l.Name, "OnWon is called twice without OnLost")
		}
		l.won++
		l.onWonTerm = l.term
	case "OnLost":
		if l.won != l.lost+1 {
			j.Fail(at, "P4", l.Name, "OnLost is called without OnWon")
		}
		if t := l.onWonTerm; t != nil && at.After(timeutil.Later(t.deadline, l.frozenUntil)) && !l.callbackReturnedAt.After(t.deadline) && !l.crashed {
			j.Fail(at, "P4", l.Name, "OnLost begins %v after the deadline", at.Sub(t.deadline))
		}
		if l.Reports.IsLeader() && !l.crashed {
			j.Fail(at, "P4", l.Name, "OnLost is called while the candidate leads")
		}
	}
	if next, ok := map[string]bool{"OnNext true": true, "OnNext false": false}[name]; ok {
		if next == l.prepared {
			j.Fail(at, "P4", l.Name, "%s is called twice", name)
		}
		l.prepared = next
	}
	l.callback = name
}

// CallbackReturned takes note that a callback is about to return.
func (j *Judge) CallbackReturned(l *Ledger, name string, at time.Time) {
	l.callback, l.callbackReturnedAt = "", at
	if name == "OnLost" {
		l.lost++
	}
}

// InventedLeader is the name in forged records. The bucket never holds it.
const InventedLeader = "nobody"

// LeaderReported judges a call of OnLeaderChange. P10: no candidate reports a leader that no record in the bucket named.
func (j *Judge) LeaderReported(l *Ledger, leader string, at time.Time) {
	if leader == InventedLeader {
		j.Fail(at, "P10", l.Name, "reports the leader %q, which only a forged notification named", leader)
	}
}

// WorkBegan takes note that work begins. valid is whether its term is, and ended whether its context has ended.
func (j *Judge) WorkBegan(l *Ledger, t election.Term, valid, ended func() bool) {
	l.working++
	l.workTerm, l.workValid, l.workEnded = t, valid, ended
}

// WorkReturned takes note that work is about to return. If its context has not ended, it returns by itself and ends the term.
func (j *Judge) WorkReturned(l *Ledger) {
	l.working--
	byItself := !l.workEnded()
	l.workQuit = l.workQuit || byItself
	l.mayEnd = l.mayEnd || byItself
}

// CheckWorkContexts judges whether the context of work has ended with its term. The context may be about to end in this very
// instant: then it returns true, and the caller must check again.
func (j *Judge) CheckWorkContexts(at time.Time) (again bool) {
	for _, l := range j.ledgers {
		switch {
		case l.working == 0 || l.crashed || !at.After(l.frozenUntil) || l.workValid() || l.workEnded():
			l.outlivedAt = time.Time{}
		case l.outlivedAt.IsZero():
			l.outlivedAt, again = at, true
		case at.After(l.outlivedAt):
			j.Fail(at, "P3", l.Name, "does not lead any more, but the context of its work has not ended")
		}
	}
	return again
}

// closedPromise names the promise that a connection which is closed for good ends a term at once, and Start and Run with its
// error.
const closedPromise = "closed"

// RequestLimit returns how long a candidate waits for the answer to one request. It restates what the contract says, so that a mistake
// in the library shows.
func RequestLimit(ttl time.Duration) time.Duration { return min(ttl/4, 2*time.Second) }

// HangingLimit returns how long requests that were sent during the trouble may hang.
func HangingLimit(ttl time.Duration) time.Duration {
	return max(3*RequestLimit(ttl), 2500*time.Millisecond)
}

// closedLimit is how long a candidate may take in the quiet to find out that its connection is closed for good: until its next
// campaign.
func (j *Judge) closedLimit() time.Duration {
	return j.longest + HangingLimit(j.longest) + j.longest/10
}

// ClosedStillRun reports whether a candidate runs on a closed connection, and judges it if it has done so for longer than the
// limit in the quiet that began at the given time.
func (j *Judge) ClosedStillRun(quiet, at time.Time) (found bool) {
	for _, l := range j.ledgers {
		if l.closedAt.IsZero() || !l.running || l.crashed {
			continue
		}
		found = true
		if since := timeutil.Later(quiet, l.closedAt); at.Sub(since) > j.closedLimit() {
			j.Fail(at, closedPromise, l.Name, "has not returned %v after its connection was closed", at.Sub(since))
		}
	}
	return found
}

// Returned judges a candidate whose Start or Run has returned: nothing of its term goes on. If its connection is closed, the
// error says so, unless the candidate was stopped or its work returned by itself.
func (j *Judge) Returned(l *Ledger, err error, stopped bool, at time.Time) {
	l.running = false
	switch {
	case !l.closedAt.IsZero() && !stopped && !l.workQuit && !errors.Is(err, nats.ErrConnectionClosed):
		j.Fail(at, closedPromise, l.Name, "returned the error %v although its connection is closed", err)
	case l.Reports.IsLeader():
		j.Fail(at, "P7", l.Name, "leads although it has returned")
	case l.Reports.State() != election.UnknownState:
		j.Fail(at, "P7", l.Name, "is %v although it has returned", l.Reports.State())
	case l.callback != "" || l.won != l.lost:
		j.Fail(at, "P4", l.Name, "returned after %d calls of OnWon and %d of OnLost (running: %q)", l.won, l.lost, l.callback)
	case l.working > 0:
		j.Fail(at, "P3", l.Name, "returned before its work did")
	}
}
