// Package supervise implements the command run of election-cli: it runs a program while this host leads an election.
//
// # The promise
//
// The program is dead before the lease ends: the program's process and every other process of its process group. So the program never
// runs on two hosts at once, whatever happens to this process, to the network or to the server, within these limits:
//
//   - A process that leaves the program's process group, as a daemon does, is not killed.
//   - If somebody kills this process, its guardian and the guardian's deputy at the same instant, Linux kills the program, but nothing kills
//     the rest of its group. On macOS nothing kills the program either.
//   - If everything is frozen past the end of the lease, as by docker pause or by SIGSTOP to this process, its guardian, the deputy and the
//     program, then the program runs for some milliseconds after the freeze, until one of the others has killed it.
//   - If the program exits by itself, but another process of its group does not end within 5 s of KILL, for example because it waits for a
//     disk, this process leaves that process behind and releases the key.
//   - A program that changes its user cannot be killed, unless this process may signal the processes of that user.
//   - If somebody deletes or overwrites the key, the lease ends at once. The program is killed as soon as this process learns of that.
//   - After a suspension of the machine the program may run until this process has read the clocks again, which it does every 100 ms.
//     No clock of a virtual machine counts the time for which its host pauses it.
//   - A machine that is so overloaded that a KILL takes longer than the kill time and the margin (below) kills the program late.
//
// The fencing token in the program's environment protects a resource within these limits too.
//
// The promise holds for --on-lost=terminate. With --on-lost=signal the program runs all the time, on every host, and only receives a
// signal when leadership begins and another when it ends.
//
// # The arithmetic
//
// The time from a renewal, which counts from the moment at which the renewal was sent, to the earliest moment at which the server may
// expire the key is one TTL of the bucket. It is divided like this:
//
//	renewed           next renewal due        TERM         KILL            lease ends    key may expire
//	   ├──────── interval ────────┼──── retry ───┼── grace ───┼── kill time ───┼─── margin ────┤
//
// The parts are:
//
//   - The margin is the library's lease margin: TTL/10, at least 50 ms.
//   - The interval is a quarter of the TTL, or 0.75 of it in a bucket without expiry markers, where candidates of Choria may campaign too, unless --interval
//     gives another.
//   - The rest is the room for retry, grace and kill time.
//   - The kill time is the time that a busy host may need to kill a process group: a third of the room, at least 25 ms and at most 500 ms.
//   - The retry time is for further attempts after a renewal that failed: what is left of the room, and at least half of it, or 3 s if that is less.
//   - The grace is the time that the program has to exit after TERM: an eighth of the room, at least 1.25 s and at most 10 s, as far as the retry time
//     allows. --grace gives another; a --grace that leaves too little retry time is refused, and the error names the values that fit.
//
// Two examples with the defaults:
//
//	TTL 2 s:   500 ms interval + 650 ms retry + 217 ms grace + 433 ms kill time + 200 ms margin
//	TTL 15 s:  3.75 s interval + 8 s retry    + 1.25 s grace + 500 ms kill time + 1.5 s margin
//
// # An orderly stop
//
// When a signal asks this process to end, or an operator asks for a handover, this host still holds the lease. The program gets TERM, or
// the signal itself, and may take the stop timeout to exit: 10 s, or the grace if that is longer, unless --stop-timeout gives another.
// The library renews the lease until the program has exited, and then releases the key. If a renewal fails meanwhile, the arithmetic
// above holds: the program is dead before the lease ends.
//
// # A program that is stopped
//
// A leader that does nothing should not lead: if the program has been stopped for longer than a TTL, by SIGSTOP or because it reads the
// terminal from the background, this process terminates it and gives up leadership. Ctrl-Z on the terminal that the program has stops this
// process too, as a shell expects of a job, and fg continues both. Then no lease is renewed, and the guardian kills the program in time.
//
// # What kills the program, and when
//
//	event                                what kills              when
//	─────                                ──────────              ────
//	leadership ends in order             run                     TERM at once, KILL after the stop timeout
//	the lease is not renewed             run                     TERM, and KILL one kill time before the lease ends
//	the key is deleted or overwritten    run                     KILL as soon as run learns of it
//	run is killed                        guardian and deputy     at once
//	run is stopped                       guardian and deputy     in the middle of the kill time
//	run and its guardian are killed      deputy                  at once
//	run and its guardian are stopped     deputy                  in the middle of the kill time
//	all three are killed                 Linux; macOS: nothing   at once, but the program alone
//	run is killed as it starts one       gate                    at once: the program does not begin
//	the machine was suspended            run; guardian, deputy   100 ms after the suspension; 250 ms if run is stopped
//	all were frozen past the lease       the first to go on      some milliseconds after the freeze
//	run is process 1 and is killed       Linux                   at once, with everything in the container
//
// The mechanisms:
//
//   - This process reads the clocks every 100 ms, because timers do not advance while a machine is suspended.
//   - The guardian is a second process, because this process cannot act while it is stopped. It learns after each renewal when to kill the group.
//     When this process is killed, the guardian's input ends.
//   - The deputy is a third process, because this process and the guardian are easily hit together. It gets the same orders.
//   - PR_SET_PDEATHSIG has Linux kill the program when the thread that started it ends, because then no process may be left to do it.
//   - The gate has the process of the program wait until the guardian knows of that process, because it might start others before.
//
// None of them needs root, a cgroup, a pidfd or a namespace, so they work in any container. A cgroup would not help, because somebody has to be
// left to kill it. A namespace of processes does: Linux kills all of it when its first process ends, and that process can be the program
// (docs/SUPERVISING.md). The witness (below) kills nothing.
//
// The guardian and its deputy are not killed by accident. Both have a session of their own, so no signal to a group or to a terminal reaches
// them, and neither does the end of a terminal. The arguments of the deputy are "deputy of-run" and the number of this process: pkill, killall
// and pidof with the name of the command do not find the deputy, nor does whatever kills this process and its children, because the deputy is a child
// of the guardian. What does find the deputy names the file: killall /usr/bin/election-cli, fuser -k.
//
// If the guardian or its deputy is killed alone, this process starts another pair one second later. The one that is left guards the
// program until then.
//
// With --on-lost=signal this process and the guardian send the --lost signal in place of TERM and KILL, at the latest one grace before
// the lease ends. The guardian and its deputy still kill the group if this process is killed.
//
// # The release after a kill
//
// If this process is killed while it leads, its witness releases the key. The witness is a child of this process with the same arguments, see
// package witness. It learns of the death from the kernel, waits until no process of the program's group runs, and then writes the release; the
// next leader stands down for the settle time of 250 ms. So the promise holds as it does for a lease that ends: the witness kills nothing that the
// guardian does not kill, and if nothing kills the group, the lease decides.
//
// The witness knows a term only together with the group of the program that runs. This process tells the witness of a new group before the
// program passes its gate, and of the end of a term before another program starts. If the witness does not take what it is told within a second,
// this process kills the witness rather than let it keep what is old. After a group that did not end within 5 s of KILL there is no witness
// any more. Without a witness the lease decides: with --no-witness, if the witness cannot be started, or if it is killed together with this process.
//
// # Descriptors
//
// The program inherits all descriptors that this process inherited, under their numbers: the sockets of a service manager, a lock, a pipe.
// If LISTEN_PID names this process, it names the program in the program's environment. The guardian, its deputy and the witness keep none of them.
//
// # Where to read on
//
// [Config.Run] starts the witness, the guardian and then one of two modes: runTerminateMode, or runSignalMode for --on-lost=signal. Both call
// campaign to take part in the election, and runProgram to start the program and to supervise it until its group is gone.
package supervise
