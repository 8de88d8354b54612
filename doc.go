// Package election elects leaders among processes that share a NATS JetStream KV bucket.
//
// Each key of a bucket with a TTL is one election. A candidate campaigns by creating the key; the one that succeeds has
// won, and keeps the key by updates that are refused if anybody else wrote it meanwhile, one every 0.75 of the TTL. All
// others wait until they are notified that the key is free, or campaign again later where nothing notifies them. A random
// splay at the start and a pluggable [Backoff] spread their campaigns out.
//
// Leadership counts only from the winner's next successful campaign, which it makes no sooner than a stand-down after it
// won: a previous leader that does not know of its loss has stood down by then. Choria elects its leaders this way, and
// its candidates can stand in the same elections.
//
// # Use
//
// [Election.Run] does the leader's work under a context that ends with leadership. [Election.Start] only stands; then
// [Election.IsLeader], [Election.Term] or the callbacks [OnWon] and [OnLost] tell. A [Term] is what a leader holds in its
// hand: it can be asked whether it still counts, and carries the fencing token.
//
// [Connect] makes what [NewElection] needs of a [Config], which [FromEnv] reads from the environment. Packages mutex and
// semaphore lock and limit among processes by the same means.
//
//	         create, or update over a release            first renewal after the stand-down
//	candidate ──────────────────────────────▶ leader-elect ──────────────────────────────▶ leader
//	    ▲                                          │                                          │
//	    └──────────────────────────────────────────┴──────────────────────────────────────────┘
//	     released, or: a foreign record, an absent key, a bucket made again, the deadline
//
// # What is guaranteed
//
//   - Lease. IsLeader and [Term.Valid] are true only while leadership counts and the deadline is ahead, which is the
//     instant just before the last acknowledged write was sent, plus the TTL, minus a margin. They read the clocks when
//     called; see below. A stuck loop, a paused process, a suspended machine or a reply that never comes cannot keep them
//     true, and an acknowledgement after the deadline counts for nothing.
//   - Stand-down. Leadership counts from the first successful update sent at least the stand-down after the win was
//     acknowledged. Only a release that the previous leader wrote itself, after its work had ended, makes that time
//     zero; a leader-elect that releases passes on what was left of its own. A candidate that adopts its own late write
//     still waits the stand-down recorded in that write. By default the stand-down is the campaign interval of the winner or
//     of its predecessor, whichever is longer: the predecessor learns of its loss by its next renewal.
//   - Stop, then release. When a leader stops or resigns, IsLeader turns false and the work's context ends at once. The
//     key is kept until callbacks and work have returned, for at most the release timeout, and only then released. What
//     does not return leaves the key to expire.
//   - Callbacks alternate, in order, one at a time, away from the goroutine that renews; see [Election].
//   - Fencing. For one key every later term has a larger [Term.Number], and across a bucket that was deleted and made
//     again a later [Term.Bucket]. [Term.Token] sorts the same way.
//   - No false abdication. A renewal that fails is tried again until the deadline. One whose reply was lost is recognised
//     by reading it back. Only proof that the key was lost, another bucket, a closed connection or the deadline end a term.
//   - Trust. Only what a candidate reads from the bucket, or what the server answers to its own writes, is believed. A
//     notification is a reason to read the key. See "What may harm an election".
//   - Proof of loss. Another's record, or the marker of a removal, over our own last write; or at a revision between the win and
//     our last write, where an unbroken history has only our own; or a refusal of the server that names another last sequence.
//     A read that finds nothing proves nothing: a replica that lags has no key either. Then the deadline decides.
//   - No ghost. A write that comes late, by a candidate that had given it up, is taken over by a fresh one or released;
//     nobody leads on it as it stands.
//   - Liveness. If some candidate can reach the bucket there is a leader: milliseconds after a release, and at the latest
//     one TTL, the server's lateness to expire keys (0.4 s), the spread of answers and one stand-down after a crash; where
//     vacancies cannot be heard of, one campaign interval later than that. A leader whose requests still arrive while no
//     reply reaches it renews once more without learning of it, which makes it one interval more.
//   - Quiet. A candidate that is notified of renewals sends nothing but a campaign every eighty TTLs or so, and one every eight where
//     expiries are not announced; a leader sends one request per renewal. Of the many that are notified of a vacancy few answer.
//     After a reconnection each reads the key, at a random time within a quarter of the TTL.
//
// # What is not
//
// A lease is a promise about clocks. Two leaders cannot overlap after an expiry as long as the stand-down plus the margin
// covers the error of the server's clock and of the leader's clock rate over one TTL; with the defaults that is more than
// three quarters of the TTL.
//
// An operator who deletes the key under a leader that is partitioned at that very moment, or deletes the bucket, makes two leaders
// possible for up to the rest of the lease if the winner cannot know. A winner that reads the deletion marker, or is notified of
// the deletion, waits a whole TTL. Use [Election.Resign] or [Election.Transfer], which hand over in order. Nor may the TTL of a
// bucket be changed while somebody leads.
//
// A server that loses its last writes, in a power cut or because it is restored from a copy, may give the key to a second candidate.
// A leader that can reach the server stands down by its next renewal, which comes within one campaign interval; one that cannot
// considers itself leader until its lease ends. A synchronous disk (sync_interval: always) and three replicas on hosts that do not
// lose power together prevent this.
//
// A lease cannot stop work that is already under way, nor beat a pause between the question and the effect: IsLeader was
// true when it was asked. Where that matters, let the receiver compare the [Term.Token] that comes with each effect with
// the highest it has seen, and refuse what is lower; this is the only complete protection, in any system of leases
// (Martin Kleppmann, "How to do distributed locking", 2016; the lease itself is that of Gray and Cheriton, 1989). Package
// fence has NATS do so for what a leader writes to streams and buckets, at ten more lines in the work that [Election.Run]
// calls; its example shows them.
//
// On a machine that was suspended IsLeader and Valid are right at once, but contexts and callbacks that timers drive
// follow when the timers do.
//
// # Clocks
//
// The monotonic clock stands still while a machine is suspended, at least on Linux and macOS, and the wall clock may be set. As
// long as both say that the same time has passed since the lease was written, to within 50 ms, the stricter of the two
// decides. When they disagree, and until the next renewal, a third clock that counts suspension takes the place of the wall
// clock: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC of the C library on macOS, GetTickCount64 on Windows. So a step of the wall
// clock ends no lease, and a suspension counts whatever the wall clock is set to. On other systems, and where a seccomp filter
// forbids to read that clock, the stricter of the first two decides, and a step forward by more than is left ends the lease.
//
// A wall clock that is set back by just as long as the machine was suspended, to within 50 ms, hides the suspension. No clock
// of a virtual machine counts the time for which its host paused it, nor does one of a process that was restored from a
// checkpoint; when the wall clock is corrected afterwards this looks like any other step. Fencing covers both.
//
// # The bucket
//
// It needs a TTL, one for all its elections, between 1 s and 1 h, and a history of 1. [CreateBucket] makes one that has
// these, announces expiries by markers that stand for a second, and republishes what it commits. Markers must be left out
// where candidates of Choria stand, which cannot create a key over one. A leader survives an outage of the server of up to the TTL less the
// interval and the margin: to outlast the crash of the server that leads a replicated stream, some 10 s, choose a TTL of 45
// s or more, or 15 s and [WithCampaignInterval] of a third of it.
//
// A candidate needs to publish to the key ($KV.<bucket>.<key>) and to read the stream's state
// ($JS.API.STREAM.INFO.KV_<bucket>). Permission to read the key ($JS.API.DIRECT.GET.KV_<bucket>.$KV.<bucket>.<key>) lets
// it recognise releases and late writes of its own, and act on notifications. A candidate without that permission campaigns every
// interval, and waits until the key has expired, and the marker of that too (1 s). It tries to read again every 80 TTLs.
//
// [Check] says what about a bucket, its server and the permissions of a candidate is wrong, and what failover times to expect.
//
// # Notifications
//
// A candidate is notified of changes of the key, best first: by a plain subscription to what the bucket republishes, which needs
// [WithJetStream] and permission to subscribe to election.<bucket>.>, and costs the server no consumer; by one watcher
// per process and bucket, for all elections in it, which needs permission to create a consumer; or not at all, and then
// it campaigns every interval. [Status] and the metrics tell which it is. A source that has not told for a second of what this
// process wrote or read is stalled, and the next best takes its place.
//
// A notification is a hint. It never elects a leader, and never ends a term: the candidate reads the key, and writes over exactly
// what it read; the leader reads the key before it believes that somebody else wrote there. A read that is older than the
// notification is made again twice, after some milliseconds. Three notifications in a row that prove wrong are enough: from then on
// they cause one read per TTL, until one proves right. [OnLeaderChange] and [Status] tell only what was read.
//
// A leader with [WithJetStream] and permission to subscribe to $KV.<bucket>.> (on a leaf node with a JetStream domain, to
// $JS.<domain>.API.$KV.<bucket>.>) is notified of the candidates' attempts. Its release names the candidate whose attempt came last,
// which answers at once; all others leave the key to that one for 25 ms. So an orderly handover takes one attempt however many
// candidates there are, and in a rolling update leadership goes to one that was started again already. Where leaders release all
// the time, as holders of a lock do, [WithFairness] has chance decide instead.
// A leader on such a leaf node is not notified of attempts made elsewhere: it names a candidate of its own node, and counts none.
//
// Candidates that were given a priority by [WithPriority] come in its order, and the others 25 ms later for each priority
// above theirs. [WithPreemption] has one ask a leader of a lower priority to transfer leadership to it.
//
// To any other vacancy, candidates answer after a random delay, and drop the answer when they are notified that another was
// quicker. The leader says in its record how many candidates it counted. Up to three answer at once. The delay of more is spread
// over one millisecond for each, so that the first answer comes after a millisecond whatever their number, and few come
// before all are notified of it; where nobody counted, over as many as processes watch the bucket, or over 46 ms. It is never
// more than a second, nor a quarter of the TTL.
//
// # What may harm an election
//
// Permission to publish below election.<bucket>, where the bucket republishes, lets a client waste reads, at most one per candidate
// and TTL, and until some TTLs later delay the answer to a vacancy by up to a TTL. Where expiries are not announced, forged
// renewals can also hide a crash for about eight TTLs. Deny publish on election.<bucket>.> to every client; only the server
// writes there.
//
// Permission to publish to election-control.<bucket>.resign.<key> or .transfer.<key> lets a client move that election, always in
// order: it can neither take the key nor have two candidates lead.
//
// Permission to write the bucket ($KV.<bucket>.<key>, or the API of its stream) is permission to end a term, by deleting the key
// or writing over it, or to claim the key and elect nobody. A forged release in the bucket, at the leader's own key, makes a
// second leader until the first renews or its lease ends: grant that permission to candidates only.
//
// # Handing over
//
// A leader hands over in order, its work ended first, when it is told to ([Election.Resign], [Election.Transfer]), when its time
// is up ([WithRelinquish], [WithRelinquishSchedule]) and when it is ill ([WithHealthCheck]); it then holds back for one
// campaign interval. [Election.Pause] keeps a candidate from campaigning, and a leader that is paused leads on;
// [Observer.Pause] does that to a whole election.
//
// # Asking candidates
//
// A process whose candidates were given [WithJetStream] answers for them over NATS. The subject of a request is
// election-control.<bucket>.<verb>.<key>, and the verbs are candidates, resign, transfer, and look, which tells of a pause. The
// process needs permission to subscribe to election-control.<bucket>.*.>, and to $SRV.>, for it is a NATS micro service called
// "election". [Election.Transfer] asks that way whether its candidate is there, and [Observer.Candidates], [Observer.Resign]
// and [Observer.Transfer] are the operator's side. A candidate without that permission may take over a release in an election
// that [Observer.Pause] has paused.
//
// Permission to publish to these subjects is permission to have leaders hand over, always in order: no request takes the key
// from a leader. It can be that for one election, such as election-control.<bucket>.*.<key>, or for one thing, such as
// election-control.<bucket>.candidates.>. A candidate needs candidates.<key> to transfer or relinquish, and transfer.<key> for
// [WithPreemption].
//
// Answers go to inboxes and nowhere else: to subjects below _INBOX, below the inbox prefix of the answering process's own
// connection, and below the one that the body of a request names, {"inbox_prefix":"_INBOX_ops"}, as an [Observer] does whose
// connection has one. Such a prefix must resemble no subject of JetStream: no token may begin with $ or KV_, or be API. A request
// that comes from another account by an import is not answered.
//
// A connection that is used for an election should have nats.ReconnectBufSize(-1): then what is written while it is down
// fails at once, in place of being sent when the candidate has long given it up.
//
// # The record
//
// Under the key stands one JSON object: name, instance, attempt, started, since, term, bucket, won (over what), host, pid,
// priority, metadata, candidates, levels (the priorities of the candidates), hears (in an attempt, by a candidate that is notified of
// vacancies), interval_ms (from one renewal to the next), stand_down_ms (from a leader-elect: what was left of it), and in a release also released, next (who is to
// take over), head_start_ms and heirs (more who stand). Anything else is read as the bare name of a leader, which is what
// [WithPlainValue] writes. Readers ignore fields that they do not know, and keep no more than a candidate may write: longer
// names are cut and end with a hash, metadata of more than 8 KiB is dropped, and a value of more than some 100 KiB is no record.
//
// # Metrics
//
// [WithRegisterer] registers these, with the labels election (the key) and identity (the name):
//
//	election_leader                        gauge      1 exactly while IsLeader is true
//	election_state                         gauge      1 for the state it is in: candidate, leader-elect or leader
//	election_campaigns_total               counter    by state
//	election_interval_seconds              gauge      from the last campaign or renewal to the next
//	election_wake_up_source                gauge      1 for the source in use: republish, watch or none
//	election_transitions_total             counter    by to (the new state) and reason
//	election_renewal_failures_total        counter    by reason: timeout, conflict, no-stream, disconnected, error
//	election_renewal_duration_seconds      histogram  round trips of successful renewals
//	election_lease_seconds                 gauge      from a renewal to the deadline; 0 until the bucket was reached
//	election_lease_remaining_seconds       gauge      0 unless the key is held
//	election_term                          gauge      number of the term; 0 unless the key is held
//	election_term_start_timestamp_seconds  gauge      0 unless the key is held
//
// Within one scrape the gauges are of one instant. Counters begin at 0, so that the first event shows as a change; and
// package dashboards has a dashboard, rules and alerts made of them all.
// Package fence has a counter of its own, election_fenced_writes_total.
// [WithNamespace] keeps the names alive that Choria's dashboards have: choria_election_campaigns, choria_election_leader and
// choria_election_interval_seconds.
//
// The reasons of transitions are started, vacant, released, reclaimed, stood-down, stopped, resigned, transferred,
// relinquished, unhealthy, work-ended, overwritten, deleted, rewound (the server lost the last writes), bucket-replaced,
// closed (the connection, for good) and deadline.
//
// [Election.Handler] answers load balancers over HTTP whether a candidate leads, and probes whether it is stuck.
package election
