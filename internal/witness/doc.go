// Package witness releases the key of a leader whose process has died.
//
// A witness is a process that learns of the death of another process from the kernel. All threads of a dead process have ended, so the work of its
// leader has. A lease proves the same, but only once it is over; the witness proves it within milliseconds.
//
//	the program                              its witness
//	───────────                              ───────────
//	teller ── terms, as they begin and end ──▸ keeper ── the program is alive: it holds the terms, and does nothing
//	   ╳  the process dies                        │
//	                                              ╰─── the kernel says that the process is dead ── releaser ── reads the key ── writes a release
//
// # What a witness may do
//
// A witness writes one release for one term: over a record that states the commitment to the secret which the witness was told, on condition that
// this very revision is still stored. Whatever else is stored, it writes nothing. The secret is that of the term, see package record, and
// the program tells it to nobody else.
//
// # What can be late, lost, doubled or paused
//
//   - A term that the program did not tell before it died is not released: its lease runs out, as without a witness.
//   - A renewal that the dead process had sent may arrive while the witness reads or writes. If it arrives before the release, the server refuses
//     the release, and the witness reads again. If it arrives after, the server refuses the renewal: it demands the revision before.
//   - A read that a replica answers may be older than the term. So the witness reads again, a few times, before it concludes that the key is
//     somebody else's.
//   - A release whose answer is lost was written or not. The witness reads the key again, and finds either its release or the term.
//   - A witness that is dead, stopped, slow or cut off releases nothing, or releases late. A late release changes nothing where the lease
//     is over and another candidate has the key: its record states another commitment.
//   - A program that outlives its witness starts another, or connects again to the one of its host, and tells its terms again.
//
// # What it cannot prove
//
// Requests of the dead process may still be on their way to a database, or in the buffers of the host. So a release states a settle time, for
// which the successor stands down. What the program left behind is not waited for: a process that it started may go on. Package
// supervise waits for those, see [Term].Group.
//
// A machine that is copied while it runs is copied with its witness: the copy may release the original's term when the copied process dies.
package witness
