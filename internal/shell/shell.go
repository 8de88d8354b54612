// Package shell is what surrounds the decisions of a candidate, as far as it is decided and not done: what others see of a term, and until when; which
// callback is due; when the work of a leader starts, and when its context ends; how long a release waits for both; and when the loop is woken.
//
// Like package core it is passive: it has no goroutine, no timer, no lock and no clock. What drives it tells it what has happened, by the methods of
// [Shell], and does at once what the shell says, by the methods of [Driver]. There are two drivers. Package election has goroutines, timers and requests,
// and holds a mutex for each call. Package sim has virtual ones, in one goroutine. So a schedule of the simulator tries this package too: only goroutines
// and the network are left to drills.
//
// A driver has a loop, which does one operation after the other:
//
//	op, events := s.Begin(now, since)      // the candidate begins to campaign
//	for {
//		for each event: s.Take(now, event) // the driver logs and counts it, too
//		if op.Kind == core.Finish: return
//		result := perform(op)              // for a wait: until the driver was told to wake the loop
//		op, events = s.Done(now, result)
//	}
//
// Everything else comes from beside the loop: notices, the end of work, the call of the next callback, the deadline of a lease.
package shell

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
)

// Driver does what a shell says. Its methods return at once, and call nothing of the shell.
type Driver interface {
	// NewTerm returns a term that begins, with its driver.
	NewTerm(*core.Term) *Term
	// Show has others see a term from now on; none, if it is nil.
	Show(*Term)
	// StartCalls starts to call callbacks, beside the loop: those that [Shell.NextCall] returns, until it returns none.
	StartCalls()
	// Wake wakes the loop at a time, in place of the time that was said before; never, if that is zero.
	Wake(at time.Time)
}

// TermDriver does what a shell says of one term.
type TermDriver interface {
	// Expire has [Shell.Expired] called for the term after a time, in place of the time that was said before; never, if the time is 0 or less.
	Expire(in time.Duration)
	// EndContext ends the context of the work and of the requests of the term.
	EndContext()
	// StartWork starts the work of the term, beside the loop. Its end is told to [Shell.WorkReturned].
	StartWork()
}

// Core decides: a candidate of an election, see [core.Candidate], or a claim of a session, see package session.
type Core interface {
	// Begin begins to campaign. The time until the first campaign counts from since.
	Begin(now, since time.Time)
	// Next returns the one thing to do now, and what there is to report before.
	Next(now time.Time) (core.Op, []core.Event)
	// Done takes what came of that.
	Done(now time.Time, r core.Result)
	// Waits returns the present wait, if that is what it does now.
	Waits() (op core.Op, waits bool)
	// Notice takes what has happened beside the loop, and returns what there is to report.
	Notice(now time.Time, n core.Notice) []core.Event
	// Term returns the term in which the key is held; nil if it is not.
	Term() *core.Term
	// Handover ends leadership in favour of a candidate, see [core.Candidate.Handover].
	Handover(now time.Time, t *core.Term, to record.Successor, why core.Reason) (reason core.Reason, refused bool)
}

// Shell surrounds the candidate of one run.
type Shell struct {
	HasWork bool // a leader has work to do
	Calls   Calls

	core     Core
	boot     lease.Clock
	driver   Driver
	term     *Term // that others see; nil if the key is not held
	working  *Term // whose work has not returned; nil if none is going on
	result   error // of the work that returned while it led
	stopping bool  // the run is to end
	looping  bool  // the loop has begun, and has not finished
	returned bool  // the run has
	wakeAt   time.Time
}

// New returns the shell of a run. The clock is [lease.SinceBoot] but in a simulator.
func New(c Core, boot lease.Clock, d Driver) *Shell { return &Shell{core: c, boot: boot, driver: d} }

// Start begins the run.
func (s *Shell) Start(now time.Time, rules *core.Rules, started time.Time) {
	s.core.Notice(now, core.NewRun{Rules: rules, Started: started})
	if s.stopping { // Stop came first
		s.core.Notice(now, core.Stop{})
	}
}

// Return ends the run. A term is over before, but if the loop has panicked: then it ends at once.
func (s *Shell) Return(now time.Time) {
	if s.term != nil {
		s.core.Notice(now, core.End{Term: s.term.Core, Why: core.Closed})
	}
	s.core.Notice(now, core.EndRun{})
	s.publish(now)
	s.returned = true
}

// Result returns what the work returned that returned while it led.
func (s *Shell) Result() error { return s.result }

// Begin begins the loop: the candidate begins to campaign. The splay counts from since.
func (s *Shell) Begin(now, since time.Time) (core.Op, []core.Event) {
	s.looping = true
	s.core.Begin(now, since)
	return s.next(now)
}

// Done passes on what came of an operation, and returns the next one and what there is to report before.
func (s *Shell) Done(now time.Time, r core.Result) (core.Op, []core.Event) {
	if op, waits := s.core.Waits(); waits {
		r.Quiet = op.Quiet && s.isQuiet()
	}
	s.core.Done(now, r)
	return s.next(now)
}

// next returns the next operation, and has the loop woken in time if that is a wait.
func (s *Shell) next(now time.Time) (core.Op, []core.Event) {
	op, events := s.core.Next(now)
	s.publish(now)
	s.takeNext(events)
	switch {
	case op.Kind == core.Finish:
		s.looping = false
	case op.Kind != core.Wait:
	case op.Quiet && s.isQuiet():
		s.wake(now)
	default:
		s.wake(op.Until)
	}
	return op, events
}

// Notice tells the candidate what has happened beside the loop, and returns what there is to report.
func (s *Shell) Notice(now time.Time, n core.Notice) []core.Event {
	events := s.core.Notice(now, n)
	s.decided(now)
	s.takeNext(events)
	return events
}

// takeNext has OnNext called. Notices and the loop change who is next, and each change counts at once: drivers may report events of both in another order.
func (s *Shell) takeNext(events []core.Event) {
	for i := range events {
		if events[i].Kind == core.NextChanged {
			s.startCalls(s.Calls.nextChanged(events[i].On))
		}
	}
}

// decided has others see what was decided beside the loop, and has the loop woken in time.
func (s *Shell) decided(now time.Time) {
	s.publish(now)
	if !s.looping {
		return
	}
	op, waits := s.core.Waits()
	if !waits {
		return
	}
	at := op.Until
	if op.Quiet && s.isQuiet() {
		at = now
	}
	if !at.IsZero() && (s.wakeAt.IsZero() || at.Before(s.wakeAt)) {
		s.wake(at)
	}
}

// DecideAgain has the loop woken now, because something that happened elsewhere lets the core decide anew. What it has decided already is seen at once.
func (s *Shell) DecideAgain(now time.Time) {
	s.publish(now)
	if s.looping {
		s.wake(now)
	}
}

func (s *Shell) wake(at time.Time) {
	s.wakeAt = at
	s.driver.Wake(at)
}

// isQuiet reports whether callbacks and work have returned.
func (s *Shell) isQuiet() bool { return !s.Calls.busy && s.working == nil }

// quietened has the loop woken that waits for callbacks and work, once they have returned.
func (s *Shell) quietened(now time.Time) {
	if !s.isQuiet() {
		return
	}
	if op, waits := s.core.Waits(); !s.looping || waits && op.Quiet {
		s.wake(now)
	}
}

// Take does what an event asks for: callbacks become due, and the work of a leader starts. The driver passes on what the loop reports, in its order, and may
// leave out all other kinds of events.
func (s *Shell) Take(now time.Time, e *core.Event) {
	switch e.Kind {
	case core.Campaigned:
		s.startCalls(s.Calls.campaigned(e.State))
	case core.LeaderSeen:
		s.startCalls(s.Calls.leaderSeen(e))
	case core.LeadershipCounts:
		t := s.term
		if t == nil || t.Core != e.Term {
			return
		}
		s.startCalls(s.Calls.leadership(t))
		if s.HasWork && t.Leads(now, s.boot) { // otherwise leadership has ended meanwhile, as by Stop
			s.working = t
			t.Driver.StartWork()
		}
	}
}

// WorkReturned says that the work of a term has returned, and how. It ends the term for the given reason, if that still leads; then led is true. The run ends
// with it unless the reason is to resign.
func (s *Shell) WorkReturned(now time.Time, t *Term, why core.Reason, err error) (led bool, events []core.Event) {
	led, events = s.End(now, t, why)
	if led && why == core.WorkEnded {
		s.result = err
	}
	s.working = nil
	s.quietened(now)
	return led, events
}

// Stop ends the run. The candidate does not campaign again for the key that it releases.
func (s *Shell) Stop(now time.Time) []core.Event {
	s.stopping = true
	return s.Notice(now, core.Stop{})
}

// IsStopping reports whether the run is to end. Only simulators ask.
func (s *Shell) IsStopping() bool { return s.stopping }

// Rename has the candidate go on under other rules, because another process uses its instance.
func (s *Shell) Rename(now time.Time, rules *core.Rules) []core.Event {
	return s.Notice(now, core.NewRules{Rules: rules})
}

// Discard drops the campaigns and the leader that wait to be announced, at the end of the run, and reports whether no callback is running. Otherwise the
// driver is told to wake the loop once none is.
func (s *Shell) Discard() (idle bool) {
	s.looping = false // even if it has panicked
	s.Calls.discard()
	return !s.Calls.busy
}
