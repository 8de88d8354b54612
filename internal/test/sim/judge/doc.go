// Package judge tells from what happened to a bucket, and from what candidates did and reported, whether package election keeps
// its promises. It knows neither where these facts come from nor how the library works, only what the library promises.
//
// The caller opens a [Ledger] for each candidate and tells the [Judge] of each [Change] of the key, each [Write] when it is sent,
// refused or known to be applied, each read, and each callback. [Judge.Observe] then judges what the candidates report of themselves.
// A broken promise is found at the first of these calls at which the facts show it. Where the contract allows what looks like a breach,
// the judge counts it and reports nothing. All calls must come one at a time.
//
//	judge.go      who is judged, and the history of the key
//	callbacks.go  what a candidate's callbacks and work do, and how its Start or Run returns
//	writes.go     what a candidate sends, reads and learns
//	terms.go      what a candidate reports of itself
//	overlap.go    two leaders at once
//	ledger.go     the evidence about one candidate
//	change.go     what happened to the key
//	journal.go    the timeline, printed if a promise is broken
//
// # What is judged
//
//   - P1, lease: a candidate does not lead, and its Term is not valid, later than a TTL less the margin after it sent its
//     last write that was acknowledged in time.
//   - P2, stand-down: a candidate leads only after a renewal that it sent when its stand-down was over, or after its win over the
//     release of a leader that names it as a successor, and only while nobody else leads. The stand-down is the candidate's own,
//     the rest that a release names, or a whole TTL if the candidate was notified that the key was deleted. A candidate that
//     adopts its own late write still waits the stand-down of that write.
//   - P3, release last: a candidate releases the key only after its callbacks and work have returned. The context of work
//     ends with the term.
//   - P4, callbacks: they alternate and never overlap, OnLost begins by the deadline, and each OnWon has its OnLost in the end.
//   - P5, tokens: each term has a larger token than all terms acquired before it.
//   - P6, no false abdication: a candidate gives up the key only if it was asked to, its work returned, the key was no longer
//     its own, or its deadline had passed.
//   - P7, no ghost: a leader acquired the key by a write whose acknowledgement it received before it gave that write up. Only
//     a running candidate leads.
//   - P10, trust: forged and replayed notifications neither bind a candidate nor excuse it, so the judge ignores them. No
//     candidate reports a leader that only a forged notification named.
//   - P11, proof of loss: a leader steps down at once when its renewal is refused with a lower sequence than it demanded, or
//     when it reads another candidate's record whose revision lies between its acquisition and its last write. After
//     history was rewound, the next renewal of a connected leader disproves its term; see Judge.mustDiscoverBy.
//   - "closed": a leader whose write fails because its connection is closed for good steps down at once. Start and Run
//     return nats.ErrConnectionClosed within Judge.closedLimit, unless the candidate was stopped or its work returned.
//
// P8 and P9 are about the time for which nothing has gone wrong, and about each single call. Only the caller knows these: it judges P8
// and P9 itself, and reports a breach with [Judge.Fail].
//
// # Two leaders at once
//
// The judge allows, counts and measures two leaders where the contract says that a lease cannot prevent them:
//
//   - The key expired early, by more than the stand-down and the margin: D + m < δ + (ρ−1)·TTL, with the true clock errors.
//   - Somebody deleted or overwrote the key, and the winner could not know. If the leader was connected and the winner
//     waited at least the leader's campaign interval, both lead for a few round trips at most.
//   - A stranger forged a release of the leader's term, or stored an earlier one again, and the winner had read nothing of the term; or
//     the winner found its own write of unknown outcome, which a stranger had stored again; or who took the forged release removed it, and
//     the next winner could not know that the key had not expired; or history had been lost before.
//   - The TTL was made shorter, and the winner had read no record of the leader that states a lease as long.
//   - A renewal was acknowledged and then deleted by an expiry that was under way. With honest clocks this happens only after
//     the deadline, and does no harm.
//   - History was rewound while one of the two held the key. A leader that is cut off, or gets no proof, leads until its
//     lease ends. Its last renewal may by chance match its successor's revision, so both may lead for two TTLs, and for one
//     TTL more per further rewind. Tokens need not grow across a rewind.
//   - The bucket was recreated or lost its sequence. A leader's revision may then match somebody else's record by chance, for
//     any time, and tokens need not grow. A resignation is not held to its time limit, because watchers of the old bucket
//     have stalled.
//
// All but the last two must end within a TTL.
package judge
