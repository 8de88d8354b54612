package sim

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/timeutil"
)

// callbackBegan judges the beginning of a callback. P4: callbacks alternate and never overlap, and OnLost begins by the
// deadline.
func (j *judge) callbackBegan(l *ledger, name string, at time.Time) {
	if l.callback != "" {
		j.fail(at, "P4", l.name, "%s is called while %s runs", name, l.callback)
	}
	switch name {
	case "OnWon":
		if l.won != l.lost {
			j.fail(at, "P4", l.name, "OnWon is called twice without OnLost")
		}
		l.won++
		l.onWonTerm = l.term
	case "OnLost":
		if l.won != l.lost+1 {
			j.fail(at, "P4", l.name, "OnLost is called without OnWon")
		}
		if t := l.onWonTerm; t != nil && at.After(t.deadline) && !l.callbackReturnedAt.After(t.deadline) && !l.crashed {
			j.fail(at, "P4", l.name, "OnLost begins %v after the deadline", at.Sub(t.deadline))
		}
		if l.reports.IsLeader() && !l.crashed {
			j.fail(at, "P4", l.name, "OnLost is called while the candidate leads")
		}
	}
	l.callback = name
}

// callbackReturned takes note that a callback is about to return.
func (j *judge) callbackReturned(l *ledger, name string, at time.Time) {
	l.callback, l.callbackReturnedAt = "", at
	if name == "OnLost" {
		l.lost++
	}
}

// leaderReported judges a call of OnLeaderChange. P10: no candidate reports a leader that no record in the bucket named.
func (j *judge) leaderReported(l *ledger, leader election.Leader, at time.Time) {
	if leader.Name == inventedLeader {
		j.fail(at, "P10", l.name, "reports the leader %q, which only a forged notification named", leader.Name)
	}
}

// workBegan takes note that work begins.
func (j *judge) workBegan(l *ledger, t election.Term, ctx context.Context) {
	l.working++
	l.workTerm, l.workValid, l.workCtx = t, t.Valid, ctx
}

// workReturned takes note that work is about to return. If its context has not ended, it returns by itself and ends the term.
func (j *judge) workReturned(l *ledger) {
	l.working--
	byItself := l.workCtx.Err() == nil
	l.workQuit = l.workQuit || byItself
	l.mayEnd = l.mayEnd || byItself
}

// checkWorkContexts judges whether the context of work has ended with its term. The context may be about to end in this very
// instant: then it returns true, and the caller must check again.
func (j *judge) checkWorkContexts(at time.Time) (again bool) {
	for _, l := range j.ledgers {
		switch {
		case l.working == 0 || l.crashed || l.workValid() || l.workCtx.Err() != nil:
			l.outlivedAt = time.Time{}
		case l.outlivedAt.IsZero():
			l.outlivedAt, again = at, true
		case at.After(l.outlivedAt):
			j.fail(at, "P3", l.name, "does not lead any more, but the context of its work has not ended")
		}
	}
	return again
}

// closedPromise names the promise that a connection which is closed for good ends a term at once, and Start and Run with its
// error.
const closedPromise = "closed"

// closedLimit is how long a candidate may take in the quiet to find out that its connection is closed for good: until its next
// campaign.
func (j *judge) closedLimit() time.Duration { return j.ttl + hangingLimit(j.ttl) + j.ttl/10 }

// closedStillRun reports whether a candidate runs on a closed connection, and judges it if it has done so for longer than the
// limit in the quiet that began at the given time.
func (j *judge) closedStillRun(quiet, at time.Time) (found bool) {
	for _, l := range j.ledgers {
		if l.closedAt.IsZero() || !l.running || l.crashed {
			continue
		}
		found = true
		if since := timeutil.Later(quiet, l.closedAt); at.Sub(since) > j.closedLimit() {
			j.fail(at, closedPromise, l.name, "has not returned %v after its connection was closed", at.Sub(since))
		}
	}
	return found
}

// returned judges a candidate whose Start or Run has returned: nothing of its term goes on. If its connection is closed, the
// error says so, unless the candidate was stopped or its work returned by itself.
func (j *judge) returned(l *ledger, err error, stopped bool, at time.Time) {
	l.running = false
	switch {
	case !l.closedAt.IsZero() && !stopped && !l.workQuit && !errors.Is(err, nats.ErrConnectionClosed):
		j.fail(at, closedPromise, l.name, "returned the error %v although its connection is closed", err)
	case l.reports.IsLeader():
		j.fail(at, "P7", l.name, "leads although it has returned")
	case l.reports.State() != election.UnknownState:
		j.fail(at, "P7", l.name, "is %v although it has returned", l.reports.State())
	case l.callback != "" || l.won != l.lost:
		j.fail(at, "P4", l.name, "returned after %d calls of OnWon and %d of OnLost (running: %q)", l.won, l.lost, l.callback)
	case l.working > 0:
		j.fail(at, "P3", l.name, "returned before its work did")
	}
}
