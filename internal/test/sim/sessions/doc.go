// Package sessions tests sessions on made-up stories, as package sim tests elections: it plays the decisions of package internal/session, and of package shell around
// each claim, on virtual time against a simulated bucket, and judges after each step what the library promises of each key.
//
// A schedule is one such story, which a seed decides: two to four processes that campaign for one to three keys, and up to three rounds. A round is a time
// of trouble: faults that last for a while (requests, replies and deliveries that are late or lost, transient conflicts, stale reads, reads that take a
// while, links that are cut, consumers that are behind, processes that are frozen) and acts that happen at once (a process starts, stops or crashes, with or
// without a witness; a key is resigned or handed over; an operator evicts a claim; a stranger writes a claim of a session that never was, takes one with a
// session of its own, forges a release, restores an older record, closes or overwrites a session, or writes that the bucket is settled; a clone renews a
// session once; history goes back; the bucket is made again). Quiet follows each round, in which every key must come to be led. In a quarter of the
// schedules clocks are slewed.
//
// Real are package internal/session and package shell. Simulated are the bucket, the network, the consumer of each process, and how long callbacks and work take.
//
//	script.go     what the seed decides
//	world.go      plays it, and judges the quiet
//	process.go    the driver of one session: its requests and its consumer
//	candidate.go  the driver of the shell of one claim
//	server.go     the bucket
//	stranger.go   what operators, strangers and disasters do to it
//	steps.go      which steps schedules have reached
//	judge.go      what is judged after each step
//
// # What is judged, of each key
//
//   - P1: nobody leads longer than a lease after the last renewal of its session was sent that was stored.
//   - P2: at most one leads, and nobody renews a session that was closed. Two are allowed, and measured, only after history has gone back, and after a stranger
//     has pretended that a term is over of which the second knew nothing.
//   - P3: neither a claim nor a session is released while callbacks or work of that key go on; but a claim is after the release timeout, if its next owner is to
//     wait for a lease.
//   - P4: OnWon and OnLost alternate.
//   - P5: the numbers of terms grow, unless history has gone back or the bucket was made again.
//   - P6: a term ends only because somebody asked for that, because the claim or the session is not its own any more, or because the lease is over. No
//     process closes a session whose lease lasts, or takes the claim of a session that is open.
//   - P7: only a candidate leads whose run has not returned.
//   - P8: in the quiet every key is led, and within a second of the end of the last leader's work if that was stopped, resigned the key, or handed it over:
//     then by another, or by the one to which it was handed over. If the work goes on, another leads a lease after the release timeout. All runs return.
//   - P9: no process makes more requests in the quiet than its renewals, and one for each session that is over, or many in one instant.
//
// Two processes that go on with one session are not simulated.
package sessions
