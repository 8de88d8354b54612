package fleettest

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Record returns the record that is stored under the key, which may be a release; "" if none is.
func (f *Fleet) Record() string {
	value, _ := f.last()
	return value
}

// Revision returns the revision of that record; 0 if none is stored.
func (f *Fleet) Revision() uint64 {
	_, revision := f.last()
	return revision
}

// last returns the record that is stored under the key, and its revision.
func (f *Fleet) last() (value string, revision uint64) {
	w, err := f.Bucket.Watch(context.Background(), Key)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = w.Stop() }()
	if e := <-w.Updates(); e != nil && kv.RemovalBy(e) == record.Kept {
		return string(e.Value()), e.Revision()
	}
	return "", 0
}

// AwaitWrite returns as soon as something else is stored under the key. It does not read the key again and again: a test that waits for
// an interval in steps of 10 ms spends most of its time so.
func (f *Fleet) AwaitWrite() {
	f.Helper()
	writes, err := f.Server.Connect(f.T).SubscribeSync("$KV." + f.Bucket.Bucket() + "." + Key)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	for before := f.Revision(); f.Revision() == before; After(Instant) { // until it is stored, if it is not refused
		_, err := writes.NextMsg(TTL)
		f.Expect(err).NotTo(gomega.HaveOccurred())
	}
	f.Expect(writes.Unsubscribe()).To(gomega.Succeed())
}

// RecordWrites returns a function that returns the records that were written to the key since it was called last.
func (f *Fleet) RecordWrites() (written func() []string) {
	sub, err := f.Server.Connect(f.T).SubscribeSync("election.>")
	f.Expect(err).NotTo(gomega.HaveOccurred())
	After(Instant)
	return func() (records []string) {
		for m, err := sub.NextMsg(Instant); err == nil; m, err = sub.NextMsg(Instant) {
			records = append(records, string(m.Data))
		}
		return records
	}
}

// Removals are the ways in which somebody can remove the key.
var Removals = map[string]func(*Fleet) error{
	"deleted": func(f *Fleet) error { return f.Bucket.Delete(context.Background(), Key) },
	"purged":  func(f *Fleet) error { return f.Bucket.Purge(context.Background(), Key) },
}

// Configure changes the stream behind the bucket.
func (f *Fleet) Configure(change func(*jetstream.StreamConfig)) {
	f.Helper()
	js := f.JetStream()
	stream, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	cfg := stream.CachedInfo().Config
	change(&cfg)
	_, err = js.UpdateStream(context.Background(), cfg)
	f.Expect(err).NotTo(gomega.HaveOccurred())
}

// Remake deletes the bucket and makes it again.
func (f *Fleet) Remake(ttl time.Duration) {
	f.Helper()
	nc := f.Server.Connect(f.T)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(gomega.Succeed())
	f.Bucket = f.Server.Bucket(f.T, nc, ttl, f.Changes...)
}

// Stored returns the record under the key.
func (f *Fleet) Stored() record.Record { return record.Parse([]byte(f.Record()), f.Revision()) }

// StrangerRelease returns a release by a stranger that names b, and that opens its own commitment.
func (f *Fleet) StrangerRelease() record.Record {
	secret := record.NewSecret()
	r := f.Stored()
	return record.Record{
		Name: "a", Instance: "x", Attempt: "x.1", Since: r.Since, Term: r.Term, BucketCreated: r.BucketCreated,
		Commitment: secret.Commitment(), Secret: secret, Released: time.Now(), Successors: []string{"b"},
	}
}

// Replace writes a record over the one that is stored, as a candidate does.
func (f *Fleet) Replace(r record.Record) {
	f.Helper()
	_, err := f.Bucket.Update(context.Background(), Key, r.Encode(), f.Revision())
	f.Expect(err).NotTo(gomega.HaveOccurred())
}

// ExpectOneLeader lets time pass, and expects that no two of the candidates lead at any time of it.
func (f *Fleet) ExpectOneLeader(d time.Duration, candidates ...*Candidate) {
	f.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); After(10 * time.Millisecond) {
		var leaders []string
		for _, c := range candidates {
			if c.IsLeader() {
				leaders = append(leaders, c.Status().Instance)
			}
		}
		f.Expect(len(leaders)).To(gomega.BeNumerically("<=", 1), "two leaders: %v", leaders)
	}
}

// ToKeyReply matches the replies to writes of the election's key.
func ToKeyReply(m faultproxy.Message) bool { return m.Request == "$KV."+natstest.BucketName+"."+Key }
