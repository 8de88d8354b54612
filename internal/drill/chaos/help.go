package chaos

// Help describes the drill, its faults, and each field of a [Report].
const Help = `With --processes each candidate is its own process, and so is each of the three servers of a cluster. The servers are of the version
that is built into this program, or run the nats-server program that --nats-server names. They keep the bucket in files: with three
replicas or, with --replicas 1, on one server. The drill injects faults for the time that --for gives. It waits for a leader between
two faults; with --every it injects them at that rate. It chooses them by the seed. The faults are, for --fault:

    kill             kill a candidate with SIGKILL, and start it again
    stop             stop a candidate with SIGSTOP for longer than the TTL, and continue it with SIGCONT
    cut              cut a candidate's link in both directions; messages are lost, or held until the link is restored
    one-way          lose a candidate's requests, or hold its replies until the link is restored
    delay            delay a candidate's replies by more than the TTL
    handover         shut a candidate down in order, and start it again
    transfer         only with --sessions: transfer one key to another candidate
    evict            delete or overwrite the key, as an operator might
    revoke           revoke permissions of a candidate's user: to read the key, to read the stream's info, to subscribe to the
                     bucket's changes and to requests, or all of these; the servers reload their configuration, and restore
                     the permissions after longer than the TTL; permission to write the key is never revoked
    forge            publish 200 forged changes per second where the bucket republishes its changes: releases, expiries,
                     deletions, renewals by candidates that do not exist, records of a later bucket, and repeated genuine
                     changes; the user has no other permission
    step-down        make the leader of the bucket's stream step down; not with --replicas 1
    rewind           only with --replicas 1: kill the server that has the bucket with SIGKILL just after a renewal, and start
                     it again with an older copy of the bucket; the copy lacks that renewal, or a change of leader and more
                     than a TTL of writes; with more replicas the other servers would restore these writes
    kill-server      kill a server with SIGKILL, and start it again
    restart-servers  restart all servers in order, one after the other
    lose-quorum      kill two of the three servers with SIGKILL, and start them again

Example: election-cli drill --processes --for 5m --fault kill --fault cut --svg drill.svg

With --witness the drill is the witness of its candidates: it releases the key of a leader that is killed, so that another leads after the
settle time of 0.25 s, not after the lease. See docs/HOW-IT-WORKS.md.

With --sessions KEYS each candidate opens a session and campaigns for that many keys, see package session; a handover closes the session.
The bucket is one for sessions. The drill judges each key for itself, and the work of each key too, which may not run in two candidates at
once; the timeline shows the first key. An evict concerns one key. The faults revoke and forge are left out.

Each candidate checks every 2 ms whether it leads, and writes each change of the answer, with the time of the machine's shared clock,
into its history. While a candidate leads, it appends numbered records to a stream. Each record requires that the last record of the
stream is the leader's own or, for the first record of a term, a record of an earlier term. So the stream refuses a late record of a
deposed leader, which counts as fenced.

The exit code is 1 if two candidates considered themselves leader at once, if the work of two ran at once, if a candidate considered itself
leader although the stream had a record of a later term, if there were terms but no records, if records or terms were out of order, if no
candidate led in time, or if a change of leader was unneeded. A change was unneeded if the leader could have renewed: for an uninterrupted
half of the time from when a renewal was due to its deadline, no fault hit the leader or its link, and the bucket acknowledged the drill's
own test writes; with --sessions also no server was down, or catching up.

If a process ends by itself, or the cluster does not become healthy, the drill ends early: it reports the results so far, keeps the
histories and logs, and exits with 2, or with 1 as above.

After a fault a candidate must lead within a limit: the sum of the TTL, 0.4 s for a server that expires the key late, 1 s for candidates
that answer the notification, and the stand-down. The limit differs in these cases (with --sessions the stand-down
counts as a TTL, because a session that has not timed a leader's lease waits for a whole one):

    1 s                            if the leader shut down in order, and --lose-replies is 0; with --sessions if no fault ended in two TTLs before
    one campaign interval longer   if the leader's requests still arrived: it may renew once more without a reply
    one interval and 1 s longer    after an outage of the bucket, from its end: candidates have to reconnect first
    the same, and one TTL longer   after servers were down, with --sessions, from when all are healthy: a session that was opened before they
                                   could make its consumer is lost after a TTL
    one TTL longer                 during a forge and three TTLs after it: misled candidates read the key once per TTL

A forge does not excuse a change of leader, because forged changes must have no effect. A revoke does not either, because a leader with
permission to write keeps leading. With --every or --lose-replies a revoke does excuse a change: a leader that has lost a reply must
read the key to learn whether the write was its own.

After a rewind the numbers of terms and the revisions come again. Terms and records are in order if all terms that began after the
rewind come after all terms that began before it; the drill counts smaller numbers separately. A leader must stand down when it can
detect the rewind: by the reply to its next renewal, 0.25 s after that renewal was due, or 1 s after the server is back or the leader's
link is restored. Until then no lease can prevent two leaders at once, and the drill counts them separately. After that two leaders at
once fail the drill.

With --json the result is one object. A field that a drill in one process has too means the same there:

    "ttl_s", "stand_down_s", "candidates", "servers", "seed", "every_s", "lose_replies", "duration_s",
    "server_version"
    "replicas"                  of the bucket
    "faults"                    a list, each with "kind", "count", "failover_s" (for each time without a leader, how long
                                it took until a candidate led) and "bound_s" (the limit)
    "overlap_s"                 how long two candidates led at once
    "keys"                      of each session; 0 without sessions. Other fields count all keys together
    "most_requests"             of a session in one second; 0 without sessions
    "work_overlap_s"            how long the work of two candidates ran at once, with sessions
    "overtaken"                 how often a candidate considered itself leader although the stream had a record of a
                                later term
    "rewind_overlap_s", "rewind_overtaken"
                                the same, before a leader could detect a rewind
    "samples"                   how often the candidates checked whether they lead
    "longest_gap_s"             the longest time between two samples of one candidate that was not stopped
    "records", "records_out_of_order", "fenced", "replies_lost", "terms", "terms_out_of_order"
    "rewind_terms_set_back"     terms after a rewind with a number that is not larger than all numbers before
    "changes"                   of leader, each with "at_s", "from", "to", "term", "reason", "cause" and "unneeded"
    "unneeded_changes"          their number
    "longest_without_leader_s"
    "late"                      failovers beyond their limit, each with "at_s", "kind", "took_s" and "bound_s"
    "outages_s"                 the durations of the outages of the bucket
    "kept"                      the folder with histories and logs; empty if they were removed`
