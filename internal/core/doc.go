// Package core is one candidate of an election: everything that it knows, and every decision that it makes. It has no clock, makes no request,
// starts no goroutine and has no random numbers of its own. What follows from its decisions for others, package shell says. Its driver, which is package
// election in a program and package sim in the simulator, does what both say. The models are RawNode of etcd's raft and the protocol libraries without I/O ("sans I/O").
//
// The driver is a loop:
//
//	op, events := candidate.Next(now)      // the one thing to do now, and what there is to report before
//	result := perform(op)                  // one wait, or one request
//	candidate.Done(now, result)            // what came of it
//
// and tells the candidate by [Candidate.Notice] what happens meanwhile: a notification, an attempt of another candidate, an operator's pause, the
// end of the run. [Candidate.Waits] says until when it waits now.
//
// # How a candidate goes on
//
// A candidate is in one role at a time, and each role in one named step, which is one wait or one request:
//
//	            a campaign is due,           the key is won        leadership ends        the term is over, and
//	            or a hint                                                                 work has returned
//	waiting ───────────────────▶ bidding ──────────────▶ holding ─────────────▶ releasing ──────────────▶ waiting
//	   ▲                            │                     │   ▲                  │   ▲
//	   └────────────────────────────┘                     ▼   │                  ▼   │
//	            it is not won                            renewing               renewing
//
// The run ends from waiting or releasing, or where another process is found to use this instance. step.go has all steps and what may follow each, on one
// page; docs/ROLES.md is drawn from it. Each role has a file with one switch over its steps, in two halves: next says what to do in a step, and done
// takes what came of it and says which step, of which role, is the next. What a role knows ends with it, and waiting lasts from one term
// to the next: a campaign takes its time from there, and returns to it. What outlives a role is in the candidate.
//
//	candidate.go          Next and Done
//	step.go               the steps of all roles
//	waiting.go            between campaigns: when to campaign
//	bidding.go            one campaign, from the read of the key to the term
//	holding.go            a leader or leader-elect, between renewals
//	renewing.go           one try to renew
//	releasing.go          the end of a term, and the release
//
//	op.go, event.go       what the driver does and reports
//	notice.go, status.go  what the candidate is told, and what it tells of itself
//	key.go                what is known of the key and its holder, and what proves that a term has ended
//	hints.go              notifications: which have the key read, and when; when their source counts as stalled
//	reading.go            reads, and whether they are permitted
//	proof.go              what a read or a refused write proves about the key that is held
//	doubt.go              own writes of unknown outcome
//	turn.go, roster.go    when this candidate bids for a vacancy; which others there are, and who takes over first
//	bucket.go             the bucket, and what holds the candidate back
//	lapse.go              how long the holder's lease still lasts, and the takeover once it has lapsed
//	acquisition.go        a write that wins: over what, and which stand-down follows
//	term.go               a term and its lease
//	records.go            what is written
//	rules.go, reason.go   who the candidate is; the words for states and reasons, and where each reason is decided
//
// # What others can make it remember
//
// Whoever may write the key, or publish notifications, costs a candidate no more than this: seven whole records of at most record.MaxBytes, 0.1 MB as JSON
// and a little more as maps (what was read for the present bid, the hint that is pending and the one that is being read for, the last release of a lock; in
// package shell the leader to announce, and the one that a callback is running for; in package election the last leader); maxRoster candidates that were
// seen, of a name and an id each, while it leads; and the holder's name, metadata and priorities. Its own writes of unknown outcome are maxDoubtful ids. What
// waits to be handled is bounded by packages notify and control, for all elections of a process together. Reads for wrong hints are one per TTL, after
// maxWrongHints.
//
// # Words
//
//	bid          one campaign, from the read to its end
//	try          one try to renew, from the first request to its end
//	hint         a notification that is a reason to read the key; it never proves who holds it
//	finding      what a read, or a refused write, proves about the key that is held
//	acquisition  a write that is to win the key
//	predecessor  the holder before a vacancy
//	known holder the last candidate that was read or written as the holder of the key
//	lapsed       of a lease: over by the clock of a candidate that saw the holder's last write, and timed the lease by it
//	turn         when a candidate bids for a vacancy, by its place among the others
//	roster       the other candidates that were seen, or the queue of a lock
//	attempt      a write to the key, of whatever outcome, as others see it; each has an id
//
// Short names of receivers and arguments: c candidate, t term, w waiting, b bidding, y renewing, d releasing, a acquisition, k key, h hints, s what was read
// (record.State), r a record or an operation's result.
package core
