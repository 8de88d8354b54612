// Package election elects leaders among processes that share a NATS JetStream KV bucket.
//
//	func lead(ctx context.Context, name string, schedule func(ctx context.Context, token string) error) error {
//		nc, err := nats.Connect("nats://localhost:4222", nats.MaxReconnects(-1), nats.PingInterval(2*time.Second))
//		if err != nil {
//			return err
//		}
//		defer nc.Close()
//		js, err := jetstream.New(nc)
//		if err != nil {
//			return err
//		}
//		bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 15 * time.Second})
//		if err != nil {
//			return err
//		}
//		candidate, err := election.NewElection(name, "scheduler", bucket, election.WithLogger(slog.Default()))
//		if err != nil {
//			return err
//		}
//		return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
//			return schedule(ctx, term.Token()) // it must return soon after ctx ends
//		})
//	}
//
// Run this on as many hosts as you like, each with a name of its own. One of them calls schedule. When it stops, the next one calls it milliseconds
// later; when it crashes, when its lease is over. If you only need a boolean, call [Election.Start] in a goroutine and check
// [Election.IsLeader]. Package connect makes connection and bucket from the environment.
//
// # How it works
//
// Each key of a bucket with a TTL is one election. A candidate campaigns by creating the key. The candidate that succeeds has won, and
// keeps the key by updates that are refused if anybody else wrote it meanwhile, one every 0.75 of the TTL. The other candidates wait
// until they are notified that the key is free. A random splay at the start and a pluggable [Backoff] spread their campaigns out.
// Leadership counts only from the winner's next successful campaign, no sooner than a stand-down after it won: a previous leader that
// does not know of its loss has stood down by then. This is how Choria elects its leaders, and its candidates can take part.
//
//	         create, or update over a release            first renewal after the stand-down
//	candidate ──────────────────────────────▶ leader-elect ──────────────────────────────▶ leader
//	    ▲                                          │                                          │
//	    └──────────────────────────────────────────┴──────────────────────────────────────────┘
//	     released, or lost: a foreign record, a deleted key, a bucket made again, the deadline
//
// A leader that releases the key names those who come next. A candidate that it names is leader-elect by being named, with no stand-down
// to wait for, since the release proves that the leader's work has ended. So its update over that very release is already its next
// successful campaign, and it leads at once. Nobody else does: neither a winner that is not named, nor one over the release of a
// leader-elect, who may itself have been waiting for a previous leader.
//
// [OpenBucket] and [CreateBucket] return a bucket that brings its connection along. Package observe shows who leads, package admin is for operators,
// package fence has NATS refuse what a deposed leader writes, and packages mutex, semaphore and group are built on elections.
//
// # Guarantees
//
//   - Lease. IsLeader and [Term.Valid] are true only while leadership counts and the deadline is ahead: the instant just before the
//     last acknowledged write was sent, plus the TTL, minus a margin. They read the clock when called, so a stuck loop, a paused
//     process, a suspended machine or a reply that never comes cannot keep them true.
//   - Stand-down. Two proofs make the stand-down zero. A release that the previous leader itself wrote, after its work had ended: it reveals
//     a secret to which the records of the term are committed. And a lapsed lease, which the winner timed by its own clock from when it saw the
//     leader's last write, before it wrote over that very write: nobody who leads by it leads any more. A winner that can tell that somebody deleted the key waits at least one
//     TTL, and one that knows of a lease which lasts longer waits for its end.
//   - Stop, then release. When a leader stops or resigns, IsLeader turns false and the work's context ends at once. The key is
//     released only after callbacks and work have returned. If they do not return within the release timeout, the key expires.
//   - Fencing. For one key every later term has a larger [Term.Number], and [Term.Token] sorts likewise, also across a bucket that was
//     deleted and made again.
//   - No false abdication. A renewal that fails is tried again until the deadline, and one whose reply was lost is recognised by
//     reading it back. Only proof of loss, another bucket, a closed connection or the deadline end a term.
//   - Trust. A candidate believes only what it reads from the bucket, and what the server answers to its own writes. A notification is
//     only a reason to read the key.
//   - No ghost. A late write of a candidate that had given it up is adopted by a fresh write or released; nobody leads on it as it is.
//   - Liveness. If a candidate can reach the bucket there is a leader: milliseconds after a release; after a crash within one TTL, if the candidate
//     was notified of the leader's last renewal and has missed nothing since. Otherwise it takes the server's lateness to expire keys (0.4 s), the spread
//     of answers (a sixteenth of the TTL, at most 1 s) and one stand-down more, and without notifications up to one campaign interval more.
//   - Quiet. A leader sends one request per renewal. A candidate that is notified sends a campaign every eighty TTLs or so
//     (every eight where the bucket announces no expiries).
//
// # Limits
//
// A lease is a promise about clocks: two leaders cannot overlap after an expiry as long as the stand-down plus the margin covers the
// error of the server's clock, of the leader's clock rate over one TTL, and of the winner's over one stand-down. With the defaults that is
// more than three quarters of the TTL. They cannot overlap after a takeover of a lapsed lease, whatever the server's clock does, as long as the speeds of the
// leader's clock and of the winner's differ by less than 0.5 %. A lease cannot stop work that is already under way, nor prevent a pause between the check and the
// effect. Where that matters, send the [Term.Token] along with each effect, and let the receiver refuse a token that is lower than one it
// has seen: this is the only complete protection in any system of leases (Martin Kleppmann, "How to do distributed locking", 2016; the
// lease itself is that of Gray and Cheriton, 1989; that nothing but the rates of clocks matters is the idea of PaxosLease, 2009).
//
// An operator who deletes the key of a leader that is partitioned at that moment makes two leaders possible for the rest of its lease if
// the winner cannot know of the deletion: use package admin, which hands over in order. So does a server that loses its last writes, in
// a power cut or because it is restored from a copy. A machine that is cloned while it leads makes two leaders with one token until the next
// renewal of either, which ends one of them. Deny publish on election.<bucket>.> to every client.
//
// docs/REFERENCE.md has the details: clocks, buckets, notifications, what may harm an election and the metrics. docs/HOW-IT-WORKS.md has
// the protocol, the record and the subjects, docs/TUNING.md helps to choose the durations, docs/PERMISSIONS.md has the permissions by
// role, and docs/TOPOLOGIES.md leaf nodes, gateways, WebSocket and long distances.
package election
