// Package session is one session of a process: one record that the process renews for all keys that it leads. It is everything that the session knows,
// and every decision that it makes. Like package core it has no clock, makes no request, starts no goroutine and has no random numbers of its own.
//
// An election renews one record for each key. A session renews its own record, and what it leads are claims: records that name the session and never
// expire. So 2,000 keys cost what one costs. These are the epoch leases of CockroachDB, with an id that is used once in place of an epoch. The protocol
// was a model and a proof before it was code: see docs/MODEL.md, spec/session.pml and spec/proof/session.go.
//
// # What is stored
//
// A bucket for sessions is one from which nothing disappears but by a write over a revision: no age limit, no deletions, purges or roll-ups. It has
//
//	s.<id>      a session: the record of its process, with the length of the lease. Only this record expires, long after its lease.
//	c.<key>     a claim: a record that names a session. Its revision is the number of the term.
//	settled     written once the bucket is older than any lease of an earlier bucket of this name
//
// # The rules
//
//   - A session leads a key while its claim is stored, the lease of the predecessor is over, and the session's own lease lasts. That counts from when the
//     last renewal was sent that is verified.
//   - A renewal is verified once the session has received everything that was stored before it: then its claims were still its own when it was stored. A
//     consumer leaves out what was replaced. So the session must also have received what has replaced it, see gaps.
//   - A session is closed by a write over the very renewal by which its lease was timed. Nobody can renew a closed session. A session that did
//     not time the lease waits for a whole lease from when it saw that the other is closed.
//   - A claim is taken by a write over its revision: if it is released, or its session is; if its session is closed; if a stranger wrote it; or if the
//     key was never claimed. Session.vacancy says for how long the taker waits then.
//   - A client that may write the key settled is believed: after the bucket was made again, a false one has first takers lead beside leaders of the bucket
//     before, for up to a lease.
//   - What was known but is missing from a read is left alone: the read may have left it out. If it is missing from the next read, too, it is gone.
//   - A session that takes a claim states for how long it waits, and its own successor waits at least as long.
//   - A claim is released once its callbacks and work have returned. If they have not within the release timeout, it is released then, and its next owner waits
//     for a whole lease, as long as the key of an election takes to expire.
//
// # How it is driven
//
// The driver is told what to request, any number of requests at a time, and tells what came of each:
//
//	ops, until := s.Next(now)              // the requests to make, and when to ask again
//	s.Done(now, op.ID, result)             // what came of one
//	s.Seen(now, change)                    // what a consumer of the bucket has delivered
//	s.MayHaveMissed(now)                   // that it may have missed something
//
// Each key that the process campaigns for is a [Claim]. Package shell surrounds it as it surrounds a candidate of an election. After each call that the
// driver makes, [Session.Touched] returns the claims whose shell is to look again. Once they have, [Session.Show] has others see that the lease was renewed.
//
//	step.go      the steps of a session and of a claim, and which may follow
//	session.go   the session: opens, renews, is lost or released
//	reading.go   when it reads everything, and what a read proves
//	others.go    when it closes other sessions, and when it forgets them
//	release.go   its release, which releases all claims by one write
//	claim.go     one key: watches, takes, leads, releases
//	stored.go    what is known to be stored
//	vacancy.go   which claims may be taken, and for how long their taker waits; whose turn it is
//	records.go   what is written
//	requests.go  the requests that are to be made, and those under way
//	op.go        what the driver does
//	holder.go    who leads a key, for people who read the bucket
package session
