// Package fence gives leaders writes that the server refuses once a newer term has begun.
//
//	// publish publishes one order as the leader. The stream ORDERS stores orders.>, and so orders.epoch.
//	func publish(ctx context.Context, js jetstream.JetStream, candidate *election.Election, order []byte) error {
//		return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
//			orders, err := fence.OpenStream(ctx, js, "ORDERS", "orders.epoch", term) // first: no older leader writes from here on
//			if err != nil {
//				return err
//			}
//			// Read here what older leaders have written: they write nothing more.
//			_, err = orders.Publish(ctx, "orders.new", order)
//			return err // if it is ErrFenced, a newer term has begun, and Run campaigns again
//		})
//	}
//
// A lease cannot stop a write that is already under way: a leader may be paused between its check of leadership and the write, or the network
// may buffer the write until another candidate has led for a long time. Only the receiver of the write can refuse it. A [Stream] and a
// [Bucket] have NATS itself do so, for streams and KV buckets; a [Guard] is for receivers of your own. Package election says how to make a
// candidate.
//
// # How it works
//
// Opening a stream or a bucket for a term begins an epoch: a record under a subject of its own, in the very stream that is to be protected.
// The record holds the term's token, and is written only if no newer term's record is stored there. Every write through the handle demands of
// the server that this record still is the last message under its subject. So the first record of a newer epoch shuts out all writes of older
// leaders that arrive later, however paused or delayed. The newer leader reads only after it has opened the stream, and so reads all that
// older leaders will ever have written.
//
//	old leader    ──epoch 17──write──write──────────────────────write✗ ErrFenced
//	new leader                               epoch 23──write──write──
//	                                        ▲ from here on the server refuses the old leader's
//
// The headers Nats-Expected-Last-Subject-Sequence and its companion -Subject make the demand. The token is that of Martin Kleppmann's "How to
// do distributed locking" (2016). Apache BookKeeper fences a ledger in the same way: the storage closes itself to an older epoch before the
// new one reads.
//
// # What is guaranteed
//
//   - After the first record of a newer epoch no write of an older one is stored in that stream, whatever the clocks, pauses and delays. In
//     the order of the stream, the epochs' writes never mix.
//   - A term that was shut out can never begin its epoch again; a newer term can, whenever the stream stores messages at all.
//   - A write that is refused for its epoch is [ErrFenced]. That closes the handle for good, and the handle sends nothing more.
//   - A handle also closes itself when the lease on the key has ended by the clocks ([election.Term.Deadline]), and opens only for a term that
//     leads. A leader that is stopping, its context ended but its key not yet released, may still write.
//   - Many goroutines may use a handle at once. A term may open several handles on one stream, on one connection or on several: a term belongs
//     to one process, in which its handles share the epoch. If one is closed, all are. Handles of an older term share nothing with them.
//   - A replicated stream accepts one write at a time that demands the same subject, and refuses others for the moment: writes queue in the
//     epoch, and are tried again until their context ends.
//
// # What is not
//
//   - A write whose reply is lost may have been stored, as with any publish, or may be until a newer epoch begins. It is an error like any
//     other of nats.go's, and not tried again; with Nats-Msg-Id you can safely try again.
//   - Writes without a handle are not refused. Let only leaders' handles write what is to be protected, by permissions if need be. A message
//     that a leader scheduled in time (Nats-Schedule) is stored by the server when it is due.
//   - Between the win and the first write under a newer epoch, writes of an older leader are in time, and are stored. So open first, then
//     read, then write.
//   - A stream that discards old messages at a limit (MaxMsgs, MaxBytes) drops the record in the end, and so may a client that purges its
//     subject or consumes it from a work queue. Then writes are refused, and a handle begins its epoch again if its term leads. From then until
//     a newer epoch only the lease keeps an older leader from doing so too: let the limits leave room for what is written during a lease. If a
//     client deletes the newest record alone, by its sequence, an older record is the last again.
//   - On a stream that allows TTLs per message the record is exempt from the maximum age. Elsewhere it ages as other messages do, and is begun
//     again; a maximum age below an hour, the longest that a lease can last, is refused.
//   - If the stream is deleted and made again, or kept in memory by servers that all restart, its sequences begin again, and a late write of
//     an older leader may match.
//
// # Servers
//
// All servers must have version 2.11.7 or newer, or the handle cannot be opened: older servers were seen to store 5 to 17 of 100 writes of
// an epoch that was over. The version that counts is that of the server that leads the stream when the handle is opened, so upgrade all
// servers of a cluster first.
//
// # Streams
//
// The stream must store the epoch subject, and nothing else under that subject: for a stream of "orders.>", say, "orders.epoch". Give each
// election that writes to the stream an epoch subject of its own, which consumers do not filter for. Permissions: publish to it, to
// $JS.API.STREAM.INFO.<stream> and to $JS.API.STREAM.MSG.GET.<stream>.
//
// Streams that are written to without the handle are refused: mirrors, streams with sources, and streams that transform subjects. So are those
// whose limits leave no room for the record beside a write, and buckets that drop their oldest keys at a limit. The limits are those at the
// time of opening.
//
// # Buckets
//
// The epoch is stored under the key epoch.<election> unless [WithEpochKey] names another, as it must where elections of one key, in different
// buckets, write to the same bucket. One message can make one demand. Put and Delete make that of the epoch. Create, Update and a Delete with
// [LastRevision] demand the key's revision as well:
//
//   - Where the bucket's stream allows atomic batches (AllowAtomicPublish; nats.go makes buckets without), by two messages that are stored
//     together or not at all. The second message demands the epoch, and marks the key witness.epoch.<election> as deleted. On one replica with
//     files the server takes milliseconds for that, on three no longer than for a plain Update.
//   - Elsewhere the handle reads the revision from the stream's leader and then writes, demanding the epoch alone. No other write of the
//     epoch comes between the two, late ones included, because the writes of all its handles queue. But a client that writes the same key
//     without a handle can come between, as can a handle with another epoch key, and a server that was cut off from the others may for some
//     seconds not know that it no longer leads.
//
// [Bucket.Atomic] reports which it is.
//
// # Receivers outside of NATS
//
// [election.Term.Token] is text that sorts as the terms do. Send it along with each effect, and let the receiver refuse a token that sorts
// before one it has seen. A [Guard] does so in memory; a database does it in the statement that writes. The project's docs/FENCING.md says
// when to use which, with recipes for SQL, HTTP and object stores that are tested in its directory fence/recipes.
//
// # Metrics
//
// [WithRegisterer] registers the counter election_fence_writes_total, with the labels bucket and election (the key) of the election, identity
// (the leader's name, see election.WithMetricsIdentity), stream, and result: stored, fenced or failed. A batch that is stored as one is one
// write.
package fence
