// Package election elects one leader among processes that share a NATS JetStream KV bucket, for work that must not run twice.
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"log/slog"
//		"os"
//		"os/signal"
//		"syscall"
//
//		"github.com/natscampaign/election"
//		"github.com/natscampaign/election/connect"
//	)
//
//	func main() {
//		if err := run(); err != nil && !errors.Is(err, context.Canceled) {
//			slog.Error("Stopped", "error", err)
//			os.Exit(1)
//		}
//	}
//
//	func run() error {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		c, err := connect.Connect(ctx, connect.Config{Key: "scheduler", URL: os.Getenv("NATS_URL"), Logger: slog.Default()})
//		if err != nil {
//			return err
//		}
//		defer c.Close()
//		candidate, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
//		if err != nil {
//			return err
//		}
//		return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
//			slog.Info("Leading", "term", term.Number, "token", term.Token())
//			<-ctx.Done() // the work: it must return soon after ctx ends
//			return nil
//		})
//	}
//
// Run it on as many hosts as you like. One process does the work. When it stops, the next one starts the work milliseconds later; when it crashes,
// the next one starts when the lease is over. If you only need a boolean, call [Election.Start] in a goroutine and check [Election.IsLeader].
//
// # A connection of your own
//
// Package connect makes connection and bucket, and can read its configuration from the environment. A program that has a connection makes the
// bucket itself. docs/FAQ.md has the reasons for the options.
//
//	nc, err := nats.Connect(os.Getenv("NATS_URL"),
//		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(2*time.Second))
//	if err != nil {
//		return err
//	}
//	defer nc.Close()
//	js, err := jetstream.New(nc)
//	if err != nil {
//		return err
//	}
//	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 15 * time.Second})
//	if err != nil {
//		return err
//	}
//	candidate, err := election.NewElection(host, "scheduler", bucket, election.WithLogger(slog.Default()))
//
// Give each candidate a name of its own. [CreateBucket] and [OpenBucket] return a bucket that brings its connection along.
//
// # How it works
//
// Each key of a bucket with a TTL is one election. A candidate campaigns by creating the key. The candidate that succeeds has won, and keeps
// the key by updates that the server refuses if anybody else wrote the key meanwhile, one every 0.75 of the TTL unless [WithCampaignInterval]
// says otherwise. The other candidates wait until they are notified that the key is free. A random splay at the start and a pluggable
// [Backoff] spread their campaigns out.
//
// A winner does not lead at once. Its leadership counts from its next successful campaign, no sooner than a stand-down after it won: a
// previous leader that does not know of its loss has stood down by then. Choria elects its leaders in this way, and its candidates can take
// part.
//
//	         create, or update over a release            first renewal after the stand-down
//	candidate ──────────────────────────────▶ leader-elect ──────────────────────────────▶ leader
//	    ▲                                          │                                          │
//	    └──────────────────────────────────────────┴──────────────────────────────────────────┘
//	     released, or lost: a foreign record, a deleted key, a bucket made again, the deadline
//
// A leader that releases the key names its successors. A candidate that the release names is leader-elect by that, with no stand-down to wait
// for, since the release proves that the leader's work has ended. Its update over that very release is already its next successful campaign,
// and it leads at once. Two kinds of winner over a release stand down first all the same: one that is not named, and one over the release of a
// leader-elect, which may itself have been waiting for a previous leader.
//
// A release is a deletion that carries the leader's last record. In a bucket that [CreateBucket] made, unless for candidates of Choria, it never
// expires: a service that was stopped in order leads again at once, however long ago that was, and operators see who led last.
//
// # Guarantees
//
//   - Lease. IsLeader and [Term.Valid] are true only while leadership counts and the deadline is ahead: the instant just before the last
//     acknowledged write was sent, plus the TTL, minus a margin. They read the clock when called, so a stuck loop, a paused process, a
//     suspended machine or a reply that never comes cannot keep them true.
//   - Stand-down. Two proofs take its place. One is a release that the previous leader itself wrote, after its work had ended: it
//     reveals a secret to which the records of the term are committed. The other is a lapsed lease: the winner timed it by its own clock from
//     when it saw the leader's last write, and then wrote over that very write, so nobody leads by that lease any more. This
//     winner leads after 54 ms, so that the others can read the proof too. A winner that can tell that somebody deleted the key waits at least one
//     TTL. A winner that knows of a lease which lasts longer waits for its end.
//   - Stop, then release. When a leader stops or resigns, IsLeader turns false and the work's context ends at once. The key is released
//     only after callbacks and work have returned. If they do not return within the release timeout, the key expires.
//   - Fencing. For one key of one bucket every later term has a larger [Term.Number], and [Term.Token] sorts likewise, also across a bucket that was
//     deleted and made again.
//   - No false abdication. A renewal that fails is tried again until the deadline, and one whose reply was lost is recognised by reading it
//     back. Only proof of loss, another bucket, a closed connection or the deadline end a term.
//   - Trust. A candidate believes only what it reads from the bucket, and what the server answers to its own writes. A notification is only
//     a reason to read the key.
//   - No ghost. A late write of a candidate that had given it up is adopted by a fresh write or released; nobody leads on it as it is.
//   - Liveness. If a candidate can reach the bucket there is a leader: milliseconds after a release; after a crash within one TTL and 0.1 s, if
//     the TTL is 4 s or more, and a candidate was notified of the leader's last renewal and has missed nothing since. Otherwise it takes the
//     server's lateness to expire keys (0.4 s), the spread of answers (a sixteenth of the TTL, at most 1 s) and one stand-down more, and
//     without notifications up to one campaign interval more.
//   - Quiet. A leader sends one request per renewal. A candidate that is notified sends a campaign within a TTL of a change of leader, and then every eighty
//     TTLs or so (and reads the key every two where the bucket announces no expiries).
//
// # Limits
//
// A lease is a promise about clocks:
//
//   - After an expiry two leaders cannot overlap as long as the stand-down plus the margin covers the error of the server's clock, of the
//     leader's clock rate over one TTL, and of the winner's over one stand-down. With the defaults that is more than three quarters of the TTL.
//   - After a takeover of a lapsed lease two leaders cannot overlap, whatever the server's clock does, as long as no clock is slewed by more than
//     one part in 12, as chrony does by default, and clocks that are not slewed differ by less than one part in 1,000.
//
// Leases are those of Gray and Cheriton (1989); that nothing but the rates of clocks matters is the idea of PaxosLease (2009); fencing tokens are
// those of Martin Kleppmann, "How to do distributed locking" (2016).
//
// A lease cannot stop work that is already under way, nor prevent a pause between the check and the effect. Where that matters, send the
// [Term.Token] along with each effect, and let the receiver refuse a token that is lower than one it has seen: no other protection is
// complete in any system of leases.
//
// Two leaders are possible:
//
//   - for the rest of a lease, if an operator deletes the key of a leader that is partitioned at that moment, and the winner cannot know of the
//     deletion. Use package admin, which hands over in order.
//   - likewise, if a server loses its last writes, in a power cut or because it is restored from a copy.
//   - until the next renewal of either, if a machine is cloned while it leads: both have one token, and that renewal ends one of them.
//
// Deny publish on election.<bucket>.> to every client.
//
// # More
//
// Package observe shows who leads, package admin is for operators, package fence has NATS refuse what a deposed leader writes, package
// witness has a killed leader replaced within milliseconds, and packages mutex, semaphore and group are built on elections.
//
//   - docs/REFERENCE.md has the details: clocks, buckets, notifications, what may harm an election and the metrics.
//   - docs/HOW-IT-WORKS.md has the protocol, the record and the subjects.
//   - docs/TUNING.md helps to choose the durations.
//   - docs/PERMISSIONS.md has the permissions by role.
//   - docs/TOPOLOGIES.md has leaf nodes, gateways, WebSocket and long distances.
package election
