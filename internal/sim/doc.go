// Package sim tries the promises of package election: the unmodified library, on virtual time, against a bucket that
// behaves as badly as a real one can.
//
// A schedule is one story, made up by a seed: two to eight candidates with options of their own, one to three rounds of
// trouble, and quiet after each. In a round candidates start, stop, crash, resign and come back, processes pause, links
// break, requests and replies are late or lost, writes are applied after their senders gave them up, the server's clock
// steps or runs wrong, keys expire late or are deleted or overwritten, and the bucket restarts, is made again or forgets
// its sequence. Reads of the key and requests for the state of the bucket fail for one candidate, for a while or for good;
// connections are closed for good; watchers deliver forged updates, and old updates again; and the bucket goes back to an
// earlier state, as after a power cut. [Run] plays one in a bubble of testing/synctest, in about a millisecond.
//
//	script   what is decided beforehand about a schedule, by its seed alone
//	world    plays the script
//	server   the bucket: a state machine that knows the truth
//	view     the bucket as one candidate sees it, through its own link; this is the jetstream.KeyValue
//	watcher  a candidate's watch of the key
//	fate     what befalls one call, by a hash of seed, candidate and call
//	forgery  updates that the bucket does not send
//	judge    compares what candidates do and say with the truth
//	journal  what happened, to be told if a promise is broken
//
// # What is judged
//
// After every reply, update, callback and change of the bucket, as soon as all that can be done then has been done:
//
//   - P1, lease. Nobody says it leads when a TTL less the margin has passed since it sent the last write that it knew in time
//     to have been applied, nor is the term valid that its work holds in its hand.
//   - P2, stand-down. Nobody leads before a renewal was acknowledged that it sent after the stand-down it owed, and
//     nobody comes to lead while another does. What it owed follows from what it took the key over: its own option, the
//     rest that a release names, or a whole TTL if it had been told that the key was deleted; and over a late write of its
//     own what it owed by that, if it is more.
//   - P3, stop, then release. No release is sent before callbacks and work have returned; the work's context ends at once.
//   - P4, callbacks. They alternate, one at a time, OnLost comes by the deadline, and none is owed in the end.
//   - P5, numbers. Each term has a larger token than all that were won before it.
//   - P6, no false abdication. Who gives up the key was told to, or its work returned, or the key was not its own any more,
//     or its deadline had passed.
//   - P7, no ghost. Who leads won by a write whose acknowledgement reached it before it had given that write up; and nobody
//     leads that does not run.
//   - P8, liveness. In the quiet somebody leads within the time that the contract says for a crash; see world.patience.
//     After an orderly resignation in the quiet somebody else does within the spread of answers, where it can hear of it.
//     A candidate that can never look at the bucket may win, but gives the key back and does not starve the others.
//   - P9, quiet. No candidate makes many calls in one instant, as it would if it tried a call again at once that fails at once.
//     Nothing else of P9 is judged.
//   - P10, trust. A forged or replayed update obliges nobody and excuses nothing: the judge does not know of it. No user is told
//     of a leader that only a forged update named.
//   - P11, proof of loss. A leader stands down in the instant in which its renewal is refused with an earlier sequence than it
//     demanded, or in which it reads the record of another candidate from between its own win and its own last write. After
//     history was rewound, a leader without trouble leads for no longer than its campaign interval and a few round trips:
//     then its next renewal disproves it. This time counts from the rewinding where refusals name the last sequence. Elsewhere it
//     counts from when another candidate's record stands under the key with a revision above that of the leader's win; no
//     other state of the key proves anything there, as a lagging replica may show the same.
//   - Closed connections ("closed"). A leader whose write fails because its connection is closed stands down in that instant.
//     In the quiet Start and Run return, within a TTL and the time for which requests may hang; see judge.closedLimit. The error
//     is nats.ErrConnectionClosed, unless the candidate was told to stop or its work returned.
//
// # What is allowed
//
// Two leaders are allowed, counted, and measured, where the contract says that a lease cannot do better:
//
//   - The key expired earlier than a TTL after the write was sent that stood under it, by more than the stand-down and the
//     margin: D + m < δ + (ρ−1)·TTL, with the error that the clocks had in that very case.
//   - Somebody deleted or overwrote the key, and the winner could not know. Where the leader was connected, and the winner
//     stood down for a campaign interval of the leader's or more, this lasts for a few round trips at most.
//   - A renewal was acknowledged and then wiped by an expiry that was under way. With honest clocks that is after the
//     deadline and harmless.
//   - The bucket's history was rewound while one of the two held the key. A leader that is cut off, or is shown no proof, leads
//     until its lease ends. Before that it may hit the record of its successor by chance, whose lease counts from then on, so
//     that the two lead together for two TTLs at most, and one more for each further rewinding. Numbers need not grow across it.
//   - The bucket was made again, or lost its sequence. Then a holder's revision may stand under the key by chance, in
//     somebody else's record, and numbers need not grow.
//
// None of these but the last two may take longer than a TTL. In a bucket that was made again an orderly resignation is not
// held to its time either: a watcher of the earlier one is blind, and that takes some campaigns or renewals to find out.
//
// # Running it
//
//	go test ./internal/sim -v -run TestSchedules -args -schedules 1000000          # from a fresh seed, which is printed
//	go test ./internal/sim -v -run TestSchedules -args -schedules 1 -seed 4711     # one schedule
//	go test ./internal/sim -v -run TestSchedules -args -schedules 2000 -promise P6 # ignores what breaks other promises
//	go test ./internal/sim -v -run TestSchedules -args -without rewound,forged,replayed    # leaves kinds of trouble out, by texts in their names
//
// A schedule that breaks a promise prints its script and its timeline, in seconds of virtual time. Without -v go test
// prints nothing of a run that passes. A kind of trouble that is left out, or that scripts did not have at first, changes nothing
// else in the script of a seed.
//
// # What is not tried
//
// Hearing by republished messages, which needs a real connection; several elections in one process; and a change of the
// TTL. There is one clock of the server, which steps and drifts, and one of all candidates: replicas whose clocks disagree
// about an expiry are not tried, nor candidates whose clocks run at different rates. A process that is paused has its calls,
// replies, updates, callbacks and work held up, while the library's own timers go on; only the drill stops a real process.
// Nor is everything in a schedule decided by the seed: the library's own random delays and the Go scheduler are
// not. A schedule that is run again follows the same script, and mostly, but not always, ends the same way.
package sim
