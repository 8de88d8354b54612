// Package core is one candidate of an election: everything that it knows, and every decision that it makes. It has no clock, makes no request,
// starts no goroutine and has no random numbers of its own. All of these come from its shell, which is package election in a program, and package
// sim in the simulator. The models are RawNode of etcd's raft and the protocol libraries without I/O ("sans I/O").
//
// The shell is a loop:
//
//	op, events := candidate.Next(now)      // the one thing to do now, and what there is to report before
//	result := perform(op)                  // one wait, or one request
//	candidate.Done(now, result)            // what came of it
//
// and tells the candidate by [Candidate.Notice] what happens meanwhile: a notification, an attempt of another candidate, an operator's pause, the
// end of the run. [Candidate.Waits] says whether the shell is to end its wait for it.
//
// # How a candidate goes on
//
// A candidate is in one phase:
//
//	             win                 leadership ends         key released or given up
//	campaigning ────────▶ leading ───────────────▶ draining ──────────────────────▶ returning
//	     ▲                                                                              │ callbacks and work have returned
//	     └──────────────────────────────────────────────────────────────────────────────┴──▶ finished, if the run is to end
//
// A candidate that is to stop while it campaigns is finished at once. The phase leading includes the time as leader-elect.
//
// Between two activities the agenda of a candidate lists what it may do, in order: see whileCampaigning and whileLeading. The first thing whose
// time has come is done. Most activities take several requests: a campaign reads the key, writes it, and reads it again if no answer came. Each step
// asks the shell for one operation, by ask, and names the method that takes the result, a stage. No stage is a closure, so that everything that a
// candidate knows is in its fields. So an activity reads as a chain of methods, each of which ends by ask or by calling the next: campaign.go,
// lead.go and drain.go begin with a drawing of theirs.
//
//	candidate.go          Next and Done; the agenda
//	op.go, event.go       what the shell does and reports
//	notice.go, status.go  what the candidate is told, and what it tells of itself
//	key.go                what is known of the key and its holder, and what proves that a term has ended
//	hints.go              notifications: which have the key read, and when; when their source counts as stalled
//	reading.go            reads, and whether they are permitted
//	doubt.go              own writes of unknown outcome
//	turn.go, roster.go    when this candidate answers a vacancy; which others there are, and who takes over first
//	bucket.go             the bucket, and what holds the candidate back
//	requests.go           requests that failed
//	campaign.go           a campaign, from the wait before it to the term
//	lapse.go              how long the holder's lease still lasts, and the takeover once it has lapsed
//	acquisition.go        a write that wins: over what, and which stand-down follows
//	term.go               a term and its lease
//	lead.go               a renewal, and what a refused one means
//	drain.go              the end of a term, and the release
//	records.go            what is written
//	rules.go, reason.go   who the candidate is; the words for states and reasons, and where each reason is decided
//
// # Words
//
//	bid          one campaign, from the read to its end
//	try          one try to renew, from the first request to its end
//	hint         a notification that is a reason to read the key; it is never believed
//	verdict      what a read means for the term: see conclude
//	acquisition  a write that is to win the key
//	predecessor  the holder before a vacancy
//	known holder the last candidate that was read or written as the holder of the key
//	lapsed       of a lease: over by the clock of a candidate that saw the holder's last write, and timed the lease by it
//	turn         when a candidate answers a vacancy, by its place among the others
//	roster       the other candidates that were seen, or the queue of a lock
//	attempt      a write to the key, of whatever outcome, as others see it; each has an id
//
// Short names are the same everywhere: c candidate, t term, b bid, y try, d drain, a acquisition, k key, h hints, s what was read (record.State),
// r a record or an operation's result.
package core
