// Package sim tests the promises of package election on millions of made-up stories. It plays the decisions of the library, package core, on virtual
// time against a simulated bucket that misbehaves in every way a real one can. Package judge says what the library promises, and judges each
// step by the bucket's true state.
//
// # What a schedule is
//
// A schedule is one such story. Its seed decides two to eight candidates with options of their own, and one to three rounds. A round is a time of
// trouble: faults that last for a while (late and lost messages, broken links, stale reads, frozen processes, forged notifications …) and acts
// that happen at once (a candidate starts, stops, crashes, resigns or hands over, also to one that is gone; an operator deletes the key or pauses the
// election; a stranger forges a release, stores a record again, or one that never expires or states an endless lease; an intruder announces a write before
// it makes it; a candidate is cloned; the bucket is recreated, goes back to an older state or gets another TTL; a clock
// steps …). See faultKind and actKind for all of them. Quiet follows each round, in which somebody must come to lead.
//
// In a quarter of the schedules the clock of each candidate is slewed at a rate of its own, by as much as chrony slews at most; most candidates have another
// clock that is not.
//
// The seed decides everything. There is one goroutine, one engine of virtual time (package virtual) and no other random number, so that a schedule is the same each time, event
// by event. An [Explorer] plays schedules without a seed: all those with up to a number of faults.
//
// # What is real, and what is simulated
//
// Real: package core, and with it every decision of a candidate; and package shell, and with it what IsLeader reads, which callback is called, when work
// starts, and when its context ends.
//
// Simulated: the bucket (a state machine with one key), the server's clock, the network between each candidate and the bucket, the sources of
// notifications, the attempts that a leader receives, operators' requests, and how long callbacks and the
// work of users take. Goroutines and timers are virtual. Drills and the tests of package election try the real ones.
//
//	script.go                     what the seed decides: candidates (plan.go), and rounds of faults and acts (trouble.go)
//	explore.go                    all schedules with few faults
//	world.go, acts.go, faults.go  play the script; quiet.go judges whether somebody leads in the quiet after each round
//	candidate.go, work.go         the driver of one candidate's shell, with callbacks and work
//	steps.go                      which steps schedules have reached
//	call.go, refusal.go           its requests: each crosses its link, which fate.go may spoil
//	judge/clock.go                its clock
//	source.go                     its source of notifications
//	server.go                     the bucket
//	forgery.go                    notifications that the bucket never sent, and what strangers store in it
//	intruder.go                   one who may write the key and knows how candidates decide
//	judge                         compares what candidates do and report with the bucket
//
// # What is judged
//
// Package judge looks after every reply, notification, callback and change of the bucket. The simulator itself judges:
//
//   - P8, liveness: in the quiet a leader appears within the time that the contract allows after a crash; see
//     world.leaderLimit. After a resignation in the quiet a successor leads within the spread of answers, if one was notified.
//     So does anybody after a handover to a candidate that is gone. A winner that knows the bucket leads although the API answers nobody.
//   - P9, no busy loop: no candidate makes more than burstLimit requests in one instant. Nothing else of P9 is judged.
//
// # How to run it
//
//	go test ./internal/test/sim -v -run 'TestSchedules$' -args -schedules 1000000       # from a fresh seed, which is printed
//	go test ./internal/test/sim -v -run 'TestSchedules$' -args -schedules 1 -seed 4711  # one schedule
//	go test ./internal/test/sim -v -run 'TestSchedules$' -args -promise P6              # reports violations of P6 only
//	go test ./internal/test/sim -v -run 'TestSchedules$' -args -without rewound,forged  # leaves out trouble by parts of its name
//	go test ./internal/test/sim -v -run TestAllSchedules -args -quarters 12             # all schedules with up to two faults, in 3 TTLs
//
// Without -v, go test prints nothing about a run that passes. Leaving out a kind of trouble changes nothing else in a script.
//
// # How to read the journal
//
// A schedule that breaks a promise prints its script, its journal and the broken promises. The script lists the candidates,
// with durations in nanoseconds and -1 for the library's default, then the faults and acts of each round with their times in
// the round. Each line of the journal is one event: the time in seconds of virtual time, the candidate ("-" for the server,
// operators and the simulator), what happened, up to two revisions ("7 → 8": applied over 7, stored as 8), a duration, and a
// remark. Read it backwards from the line with "***". The second candidate on the host of a is a2, and so on.
//
// # Limits
//
//   - Each process has one election.
//   - A bucket without a connection does not show how a record was stored. So a candidate that has read nothing of a term may take a
//     forged release for its end, and one that does not know the outcome of a write may take a copy of it for its own.
//   - The clocks of a candidate agree: its wall clock is not stepped, and it is not suspended. The tests of package core do that. The server has one clock,
//     which steps and drifts. Replicas whose clocks disagree are not simulated.
package sim
