// Package session has one process lead thousands of keys for the price of one: the process renews one lease for all of them.
//
//	s, err := session.Open(ctx, js, session.Config{Bucket: "TENANTS", Name: "worker-1"})
//	if err != nil {
//		return err
//	}
//	e, err := s.Election("tenant-42") // in place of election.NewElection
//	if err != nil {
//		return err
//	}
//	go e.Run(context.Background(), work)
//	<-ctx.Done()
//	return s.Close(context.Background()) // one write releases all keys once their work has returned
//
// An election renews one record for each key, so 2,000 keys cost 2,000 times what one costs. A session renews one record for its process, and each key that it
// leads is a claim: a record that names the session, and is written only when the leader changes. Every process that may lead a key opens a session in the
// bucket and campaigns for the key by it. These are the epoch leases of CockroachDB (2016), with the session in the place of a node's liveness record.
//
// # Which one to take
//
//	an election   one key or a few; candidates of Choria; a bucket that has others' keys
//	a session     many keys, each of which every process may lead, and which need not be spread evenly
//	a group       many keys that are to be spread evenly over the processes, and to stay where they are
//
// # What is guaranteed
//
// Each election keeps the promises of package election: see its documentation on what a lease can do and what not. In particular leadership of a key counts
// only once every earlier leader has stood down; IsLeader and Term.Valid end with the lease by the clock; terms number the leaders of a key, for fencing; and
// work has returned before a key is released. The lease belongs to the process: if it is lost, all keys are.
//
// # What is not guaranteed
//
//   - Keys are not spread evenly. The first process leads all; those of a process that ends, or dies, are shared out among the others at random.
//   - A process that renews its lease and does not work keeps all its keys: election.WithHealthCheck of each election gives up a key whose work fails.
//   - A client that may write claims can take keys from their leaders, and one that may write the keys of other sessions can end these. The README of this package has
//     a block of permissions, and says what each permission allows.
//   - If the server loses its last writes, as a server alone may by a power cut, a session may not see the claims that were stored in their place until it reads
//     everything again, within 40 TTLs. An election notices that at its next renewal.
//   - A session follows its bucket by a consumer. After an outage of a cluster it leads again only once the cluster makes consumers: a few seconds after it takes
//     writes again.
//
// # How long it takes
//
// With a TTL of 15 s: a key that is handed over is led again within milliseconds, and 2,000 keys of a session that is closed within half a second. After a crash
// all keys are led again some 15 s after the last renewal, so 11 to 15 s after the crash, or within a second where a witness learns of the death, see package
// witness: give its Option to [Open].
// A process that has just started may have to wait for a lease before it leads a key of one that died, and leaves it to others that need not.
// A key that nobody ever led is led at once if the bucket is older than a lease. In a bucket that was just made, the first leaders wait for 16 s, because the
// bucket may have been deleted and made again while somebody led. If work does not return within the release timeout after its leadership has ended, another
// process leads the key a lease later all the same, as with an election.
//
// # What it costs
//
// Each session makes one request in a quarter of a TTL, and one for each key when the key changes hands. It receives what all sessions of the bucket write:
// [MaxSessions] of them renew 27 times a second in all, with a TTL of 15 s. Memory: see docs/PERFORMANCE.md.
//
// A claim stays in the bucket for good, released or not: some 400 bytes for each key that was ever led, in the stream and in the memory of each session. A session
// reads all of them when it is opened, and again within 40 TTLs; meanwhile it is told nothing else, so reading must take less than a lease. So sessions are for
// keys that come back, as tenants and shards do, and not for ids of jobs.
//
// # The bucket
//
// [Open] makes it. Nothing in it disappears but by a write over a revision, so that a session that has received everything knows who leads: it has no TTL, and allows
// no deletions, purges or roll-ups. Only the record of a session expires, long after its lease. Do not set an age limit: a session notices it within 40 TTLs, leads
// nothing then, and logs why; until then claims may expire that are led. The bucket is of no use for elections of package election, nor are their buckets for
// sessions. Its TTL is for good. The server must be 2.11 or later, better 2.11.7.
package session
