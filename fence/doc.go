// Package fence gives leaders writes that the server refuses once a newer term has begun.
//
// A lease cannot stop a write that is already under way: a leader may be paused between the question whether it leads and
// the write, or its write may lie in a buffer of the network until somebody else has led for long. Only whoever receives
// the write can refuse it. A [Stream] and a [Bucket] have NATS itself do so, for streams and KV buckets; a [Guard] is for
// receivers of your own.
//
// # How it works
//
// To open a stream or a bucket for a term begins an epoch: a record under a subject of its own in the very stream that is
// to be protected, which holds the term's token, written only if no newer term's stands there. Every write through the
// handle demands of the server that this record still is the last one under its subject. So the first record of a newer
// epoch shuts out whatever older leaders send from then on or had under way, paused or delayed, and the newer leader, who
// reads only after it has opened the stream, has seen all that older ones will ever have written.
//
//	old leader    ──epoch 17──write──write──────────────────────write✗ ErrFenced
//	new leader                               epoch 23──write──write──
//	                                        ▲ from here on the server refuses the old leader's
//
// The demand is made by the headers Nats-Expected-Last-Subject-Sequence and its companion -Subject. The token is that of
// Martin Kleppmann's "How to do distributed locking" (2016); that the storage closes itself to an older epoch before the
// new one reads is what Apache BookKeeper does when it fences a ledger.
//
// # What is guaranteed
//
//   - After the first record of a newer epoch no write of an older one is stored in that stream, whatever the clocks, pauses
//     and delays. In the order of the stream, the epochs' writes never mix.
//   - A term that was shut out can never begin its epoch again; a newer one can, whenever the stream takes messages at all.
//   - A write that is refused for its epoch is [ErrFenced]. The handle is closed by that for good, and sends nothing more.
//   - A handle also closes itself when the lease on the key has ended by the clocks ([election.Term.Deadline]), and opens for a
//     term only that leads. While a leader winds up, its context ended but its key not yet released, it may still write.
//   - Handles may be used by many goroutines at once. A replicated stream takes one write at a time that demands the same
//     subject, and refuses others for the moment: writes queue in the handle, and are tried again until their context ends.
//
// # What is not
//
//   - A write whose reply is lost may have been stored, as with any publish, or may be until a newer epoch begins. It is an error
//     like any other of nats.go's, and not tried again; Nats-Msg-Id makes it safe to do so.
//   - Writes that do not go through a handle are not refused. Let only leaders' handles write what is to be protected, by
//     permissions if need be. A message that a leader scheduled in time (Nats-Schedule) is the server's when it is due, and stored.
//   - Between the win and the first write under a newer epoch, writes of an older leader are in time, and are stored. So open
//     first, then read, then write.
//   - Limits of the stream may drop the record in the end, and so may whoever purges its subject or consumes it from a work
//     queue. Writes are refused then, and a handle begins its epoch again if its term leads. From then until a newer epoch the
//     lease alone keeps an older leader from doing so too. On a stream that allows TTLs per message the record is exempt
//     from the maximum age. Whoever deletes the newest record alone, by its sequence, makes an older one the last again.
//   - If the stream is deleted and made again, or kept in memory by servers that all restart, its sequences begin again, and
//     what an older leader had under way may fit.
//
// # Streams
//
// The epoch subject must be one that the stream stores, with nothing else under it: for a stream of "orders.>", say,
// "orders.epoch". Give each election that writes to the stream one of its own, outside of what consumers filter for.
// Permissions: publish to it, to $JS.API.STREAM.INFO.<stream> and to $JS.API.STREAM.MSG.GET.<stream>.
//
// Streams that others write to behind the handle are refused: mirrors, those with sources, and those that transform subjects.
//
// # Buckets
//
// The epoch stands under the key epoch.<election> unless [WithEpochKey] names another, as it must where elections of one key, in
// different buckets, write to the same. One message can make one demand. Put and Delete make that of the epoch. Create, Update
// and a Delete with [LastRevision] demand the key's revision as well:
//
//   - Where the bucket's stream allows atomic batches (AllowAtomicPublish; nats.go makes buckets without) by two messages that are
//     stored together or not at all. The second one, which demands the epoch, marks the key witness.epoch.<election> as
//     deleted. On one replica with files the server takes milliseconds for that, on three no longer than for a plain Update.
//   - Elsewhere the handle reads the revision from the stream's leader and then writes, demanding the epoch alone. This is exact
//     among all that write through this handle, late writes included; but somebody who writes the same key past it can come
//     between the two, and a server that was cut off from the others may for some seconds not know that it leads no more.
//
// [Bucket.Atomic] tells which it is.
//
// # Receivers outside of NATS
//
// [election.Term.Token] is text that sorts as the terms do. Send it along with each effect, and let the receiver refuse one
// that sorts before one it has seen. A [Guard] does so in memory; a database does it in the statement that writes. The
// project's docs/FENCING.md says when to use which, with recipes for SQL, HTTP and object stores that are tested in its
// directory fence/recipes.
//
// # Metrics
//
// [WithRegisterer] registers the counter election_fenced_writes_total, with the labels election (the key), identity (the
// leader's name), stream, and result: stored, fenced or failed. A batch that is stored as one is one write.
package fence
