// Package witness releases the key of a leader whose process has died.
//
// A witness is a process that learns of the death of another process from the kernel. All threads of a dead process have ended, so the work of its
// leader has. A lease proves the same, but only once it is over; the witness proves it within milliseconds.
//
// # Which process
//
// The witness of one program is a child of that program, so it knows which process to watch. To the witness of a host anybody may connect, also a relay
// that ends while the program lives. So a program introduces itself by a descriptor of its own process (a pidfd), which relays do not pass on; the
// death of that process counts, and never the end of the connection. The process that connected must be dead, too, where the kernel tells which it is.
// On macOS the program says its number and the time of its start, and both must be those of the process that connected. Only then it is told
// that it is watched, and tells its terms.
//
// # Exec
//
// A process that replaces itself by exec lives on, and no thread of its former image does. On Linux a program also passes a file in memory that it has
// mapped: the kernel lets nobody seal the file before that mapping has ended with the image. So when the connection ends, and the file can be sealed, the
// terms are released. Where the kernel shows neither death nor exec, the terms are left to their leases.
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
// It believes nothing else of a program. Buckets are those of its own account or of the prefixes of the JetStream API that its operator allowed: anybody
// may answer for another prefix. The stream of a bucket must store the keys of that bucket and nothing else, see checkOwn. What programs make
// the witness of a host remember is bounded, by connection, user and in all.
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
//   - A program whose witness reads nothing remembers what that knows and what it is to know, and no more.
//
// # What it cannot prove
//
// Requests of the dead process may still be on their way to a database, or in the buffers of the host. So a release states a settle time, for
// which the successor stands down. What the program left behind is not waited for: a process that it started may go on. Package
// supervise waits for those, see [Term].Group.
//
// A machine that is copied while it runs is copied with its witness: the copy may release the original's term when the copied process dies.
package witness
