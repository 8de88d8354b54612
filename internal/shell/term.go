package shell

import (
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
)

// Term is what others see of a term: its lease, which they may read at any time, from any goroutine. Package core decides about the term.
type Term struct {
	Core   *core.Term
	Driver TermDriver
	lease  atomic.Pointer[core.Lease]
}

// Lease returns the lease, as it is now. Nothing changes it any more: it may be used later, when the term is over and its session is renewed for others.
func (t *Term) Lease() *core.Lease {
	for {
		l := t.lease.Load()
		if last := l.Last(); l == t.lease.Load() {
			return last
		}
	}
}

// SetLease has others see a lease from now on.
func (t *Term) SetLease(l *core.Lease) { t.lease.Store(l) }

// Leads reports whether leadership counts at now. It is all that IsLeader and Term.Valid do.
func (t *Term) Leads(now time.Time, boot lease.Clock) bool {
	l := t.lease.Load()
	return l.State == core.Leader && l.Left(now, boot) > 0
}

// publish has others see what was decided about the term: another term when one begins or is over, and its lease.
func (s *Shell) publish(now time.Time) {
	if s.returned { // the candidate may be in another run
		return
	}
	if s.term != nil {
		s.follow(now, s.term)
	}
	switch t := s.core.Term(); {
	case t == nil && s.term != nil:
		s.term.Driver.Expire(0)
		s.term = nil
		s.driver.Show(nil)
	case t != nil && (s.term == nil || s.term.Core != t):
		s.term = s.driver.NewTerm(t)
		s.follow(now, s.term)
		s.driver.Show(s.term)
	}
}

// follow takes over what package core has decided about a term: others see the new lease from now on, it expires in time, and if leadership has ended, so
// does the context of the work.
func (s *Shell) follow(now time.Time, t *Term) {
	before, l := t.lease.Load(), t.Core.Lease
	if before == l {
		return
	}
	t.SetLease(l)
	t.Driver.Expire(l.Left(now, s.boot))
	if l.State == core.Follower && (before == nil || before.State != core.Follower) {
		t.Driver.EndContext()
		s.startCalls(s.Calls.leadership(t)) // before the loop looks whether a callback is due: OnLost is
	}
}

// End ends the leadership of a term, and reports whether it was this call that did.
func (s *Shell) End(now time.Time, t *Term, why core.Reason) (first bool, events []core.Event) {
	if s.returned { // the candidate may be in another run
		return false, nil
	}
	before := t.Core.Lease.State
	events = s.Notice(now, core.End{Term: t.Core, Why: why})
	s.follow(now, t) // the term may be over, and then it is not published any more
	return before != core.Follower && t.Core.Lease.State == core.Follower, events
}

// Expired is called when the time has come that [TermDriver.Expire] said: leadership ends, unless the lease was renewed meanwhile.
func (s *Shell) Expired(now time.Time, t *Term) []core.Event {
	first, events := s.End(now, t, core.Deadline)
	if left := t.Lease().Left(now, s.boot); !first && left > 0 {
		t.Driver.Expire(left)
	}
	return events
}

// Handover ends the leadership of a term in favour of a candidate: see [core.Candidate.Handover].
func (s *Shell) Handover(now time.Time, t *Term, to record.Successor, why core.Reason) (refusal core.Reason, refused bool) {
	refusal, refused = s.core.Handover(now, t.Core, to, why)
	s.decided(now)
	return refusal, refused
}
