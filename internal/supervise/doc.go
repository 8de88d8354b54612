// Package supervise runs a program while this host leads an election.
//
// It promises that the program is dead before the lease is over: the program and all processes of its group. So the program never runs on
// two hosts at once, whatever happens to this process, to the network or to the server, within these limits:
//
//   - A process that leaves the program's group, as a daemon does, is not ended.
//   - A program that becomes another user cannot be ended, unless this process may signal that user's processes.
//   - Where somebody deletes or overwrites the key the lease is over at once, and the program is killed when that is noticed.
//
// # The arithmetic
//
// A lease is spent like this, from the renewal that began it:
//
//	renewed          next renewal due         TERM            KILL      the lease ends
//	   ├──────── interval ────────┼──── retry ────┼──── grace ────┼── death ──┤   margin, TTL
//
// The margin, max(50 ms, TTL/50), is the library's: the lease ends that much before the key may expire. The interval is 0.75 of the TTL
// unless it is given. Of what is left, death is a third, from 25 ms to 500 ms: the time that a busy host may take to kill a group. Retry is
// half, at most 3 s: the time in which a renewal that failed may be tried again before the program has to end. Grace is the rest, at most
// 10 s unless more was asked for. A grace that leaves less for retry is refused, with the ways out.
//
// # Who ends the program
//
//   - This process, by TERM and then by KILL, when leadership ends or the lease is not renewed. It reads the clocks every 100 ms, as timers
//     stop while a machine is suspended.
//   - A guardian, should this process be stopped: a second process that is told with each renewal when to kill the group, half of death
//     before the lease ends.
//   - The guardian too, should this process be killed: then its input ends, and it kills the group at once.
//   - The system, should both be killed: on Linux the program gets KILL when the thread that started it ends.
//
// A program is started behind a gate: its process exists and the guardian knows of it before the program itself begins.
package supervise
