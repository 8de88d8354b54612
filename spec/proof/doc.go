// Proof proves the rule of the election for any number of candidates, any durations and real-valued time. Run it from the root of the
// repository, with z3 and cvc5 installed:
//
//	go run ./spec/proof            # every obligation, by both solvers
//	go run ./spec/proof -print OBLIGATION
//
// The rule is a transition system (rule.go). Its state is what the server stores under one key, and what each candidate knows. A
// transition is what happens at one instant: a write is stored, an answer arrives, time passes. Names are those of package core and of
// spec/election.pml.
//
// The invariant (invariant.go) holds in the first state, and every transition keeps it. It implies that at most one candidate leads. So no
// number of candidates and no length of a run can break that.
//
// # Sessions
//
// A second rule, session.go, is that of sessions: one renewal for all keys of a process. It is written and proved in the same way.
//
// # One term is one candidate
//
// A candidate of the proof campaigns once. A candidate of the program that campaigns again, after a term or under another instance, is
// another one here. That only adds behaviour: nobody knows what the program's candidate remembers of its earlier terms.
//
// # Time
//
// All times are true time. A clock that runs up to rate too fast or too slow is in the durations: lease is the longest true time for which
// a holder may believe in a lease, standDown the shortest true time that a stand-down takes, lapse the shortest that a taker waits. The
// obligations of rates.go show what the documented inequality says about these for clocks of any speed within bounds.
//
// # Strangers and notifications
//
// A notification states any revision and any stamp, and a stranger writes anything at any time, with a condition on the revision or without one. One
// thing nobody knows before something is stored: its stamp. So a notification proves nothing by itself. If a read shows its stamp, what is stored was
// stored before the notification came. A stranger's release proves nothing to a candidate that has read an earlier record; candidates that have read
// none are left out, because they believe it.
//
// # A history that goes back
//
// A server that loses its last writes, or is restored from a copy, has what was stored before, and gives revisions a second time. Nothing is
// promised of the terms that were won until then: in the proof they are excused. All is promised again of the terms that are won afterwards, beside
// each other: at most one of them leads, and their numbers grow. A bucket that is made again is a history that went back to nothing. One thing is
// assumed: no write that was made before the history went back is stored after it, because the same revision came again.
//
// # How the solvers decide it
//
// A statement about all candidates is proved for candidates that are named: the one that acts, the holder, and one or two others, of whom
// nothing is known. Of the invariant each obligation assumes what it says about these. To assume less is sound. So no obligation has
// a quantifier, and all but those about rates are linear: both solvers decide all of them.
package main
