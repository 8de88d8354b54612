package fence_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

// onBuckets runs f for a bucket as nats.go makes them, and for one whose stream allows atomic batches.
func onBuckets(t *testing.T, f func(b *bench)) {
	t.Helper()
	for name, allow := range map[string]bool{"plain": false, "atomic": true} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(b *bench) {
				if allow {
					b.change(ofBucket, atomic)
				}
				f(b)
			})
		})
	}
}

// value returns the value of a key of the bucket, "" if it has none.
func (b *bench) value(key string) string {
	b.Helper()
	e, err := b.bucket.Get(ctx, key)
	if err != nil {
		return ""
	}
	return string(e.Value())
}

func TestBucketDoesWhatAKeyValueDoes(t *testing.T) {
	natstest.SkipIfShort(t)
	onBuckets(t, func(b *bench) {
		kv := b.openBucket(b.leader("a"))

		first, err := kv.Put(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		_, err = kv.Create(ctx, "x", []byte("no"))
		b.Expect(err).To(MatchError(jetstream.ErrKeyExists))
		second, err := kv.Update(ctx, "x", []byte("2"), first)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(second > first).To(BeTrue())
		_, err = kv.Update(ctx, "x", []byte("no"), first)
		b.Expect(err).To(MatchError(jetstream.ErrKeyRevisionMismatch))
		b.Expect(kv.Delete(ctx, "x", fence.LastRevision(first))).To(MatchError(jetstream.ErrKeyRevisionMismatch))

		found, err := b.bucket.Get(ctx, "x")
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(string(found.Value())).To(Equal("2"))
		b.Expect(found.Revision()).To(Equal(second), "what Update returns is the revision")

		b.Expect(kv.Delete(ctx, "x", fence.LastRevision(second))).To(Succeed())
		_, err = b.bucket.Get(ctx, "x")
		b.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
		third, err := kv.Create(ctx, "x", []byte("3"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.value("x")).To(Equal("3"))
		b.Expect(kv.Delete(ctx, "x")).To(Succeed())
		b.Expect(kv.Delete(ctx, "never was")).NotTo(Succeed())
		b.Expect(kv.Delete(ctx, "never-was")).To(Succeed())
		_, err = kv.Update(ctx, "y", []byte("new"), 0)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.value("y")).To(Equal("new"))

		_, err = kv.Update(ctx, "x", []byte("no"), third)
		b.Expect(err).To(MatchError(jetstream.ErrKeyRevisionMismatch))
		b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())
	})
}

func TestEveryWriteOfAnOlderTermToABucketIsRefused(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, write := range map[string]func(kv *fence.Bucket, revision uint64) error{
		"Put":    func(kv *fence.Bucket, _ uint64) error { _, err := kv.Put(ctx, "x", []byte("late")); return err },
		"Create": func(kv *fence.Bucket, _ uint64) error { _, err := kv.Create(ctx, "new", []byte("late")); return err },
		"Create over a value": func(kv *fence.Bucket, _ uint64) error {
			_, err := kv.Create(ctx, "x", []byte("late"))
			return err
		},
		"Update": func(kv *fence.Bucket, r uint64) error { _, err := kv.Update(ctx, "x", []byte("late"), r); return err },
		"Update of an older revision": func(kv *fence.Bucket, r uint64) error {
			_, err := kv.Update(ctx, "x", []byte("late"), r-1)
			return err
		},
		"Delete":                 func(kv *fence.Bucket, _ uint64) error { return kv.Delete(ctx, "x") },
		"Delete of its revision": func(kv *fence.Bucket, r uint64) error { return kv.Delete(ctx, "x", fence.LastRevision(r)) },
	} {
		t.Run(name, func(t *testing.T) {
			onBuckets(t, func(b *bench) {
				first := b.leader("a")
				old := b.openBucket(first)
				now := b.openBucket(b.rival("b"))
				revision, err := now.Put(ctx, "x", []byte("1"))
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(first.term.Valid()).To(BeTrue())
				b.Expect(write(old, revision)).To(MatchError(fence.ErrFenced))
				b.Expect(b.value("x")).To(Equal("1"))
				b.Expect(b.value("new")).To(BeEmpty())
				b.Expect(now.Update(ctx, "x", []byte("2"), revision)).To(BeNumerically(">", revision))
			})
		})
	}
}

func TestEpochIsBegunOverTheDeletionMarkerOfItsRecord(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, drop := range map[string]func(b *bench) error{
		"delete": func(b *bench) error { return b.bucket.Delete(ctx, "epoch."+key) },
		"purge":  func(b *bench) error { return b.bucket.Purge(ctx, "epoch."+key) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(b *bench) {
				l := b.leader("a")
				kv := b.openBucket(l)
				b.Expect(drop(b)).To(Succeed())
				_, err := kv.Put(ctx, "x", []byte("1"))
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(drop(b)).To(Succeed())
				l.end()
				now := b.openBucket(b.leader("b"))
				_, err = now.Put(ctx, "x", []byte("2"))
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(b.value("x")).To(Equal("2"))
			})
		})
	}
}

func TestWriteThatFailedHasNoRevision(t *testing.T) {
	natstest.SkipIfShort(t)
	onBuckets(t, func(b *bench) {
		kv := b.openBucket(b.leader("a"), nil)
		_, err := kv.Put(ctx, "x", nil)
		b.Expect(err).NotTo(HaveOccurred())
		revision, err := kv.Update(ctx, "x", nil, 99)
		b.Expect(err).To(HaveOccurred())
		b.Expect(revision).To(BeZero())
		revision, err = kv.Create(ctx, "x", nil)
		b.Expect(err).To(HaveOccurred())
		b.Expect(revision).To(BeZero())
		b.Expect(kv.Delete(ctx, "x", nil)).To(Succeed())
	})
}

func TestKeysDoNotIncludeTheWitness(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.change(ofBucket, atomic)
		kv := b.openBucket(b.leader("a"))
		_, err := kv.Create(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.bucket.Keys(ctx)).To(ConsistOf("x", "epoch."+key))
	})
}

func TestGetReturnsTheValueOfAKey(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		kv := b.openBucket(b.leader("a"))
		_, err := kv.Get(ctx, "x")
		b.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
		revision, err := kv.Put(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		found, err := kv.Get(ctx, "x")
		b.Expect(err).NotTo(HaveOccurred())
		plain, err := b.bucket.Get(ctx, "x")
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect([]any{found.Bucket(), found.Key(), string(found.Value()), found.Revision(), found.Operation(), found.Delta(), found.Created().Equal(plain.Created())}).
			To(Equal([]any{bucketName, "x", "1", revision, jetstream.KeyValuePut, uint64(0), true}))
		b.Expect(kv.Delete(ctx, "x")).To(Succeed())
		_, err = kv.Get(ctx, "x")
		b.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
		b.Expect(b.bucket.Purge(ctx, "x")).To(Succeed())
		_, err = kv.Get(ctx, "x")
		b.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
	})
}

func TestLeaderMayWriteToTheBucketOfItsOwnElection(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		kv, err := fence.OpenBucket(ctx, l.js, natstest.BucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		time.Sleep(10 * ttl) // the bucket's age does not end the epoch
		_, err = kv.Put(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(l.term.Valid()).To(BeTrue())
		_, err = fence.OpenBucket(ctx, l.js, natstest.BucketName, l.term, fence.WithEpochKey(key))
		b.Expect(err).To(MatchError(ContainSubstring("the key of the election itself")))
	})
}

func TestBadInputOfABucketIsAClearErrorAndWritesNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		_, err := b.bucket.Put(ctx, "taken", []byte("a value"))
		b.Expect(err).NotTo(HaveOccurred())
		for _, c := range []struct {
			bucket, key string
			term        election.Term
			says        string
		}{
			{"NOSUCH", "", l.term, "bucket not found"},
			{bucketName, "", election.Term{}, "no term given"},
			{bucketName, "a b", l.term, `the key for epochs, "a b"`},
			{bucketName, "taken", l.term, "is no epoch"},
		} {
			var opts []fence.Option
			if c.key != "" {
				opts = append(opts, fence.WithEpochKey(c.key))
			}
			_, err := fence.OpenBucket(ctx, l.js, c.bucket, c.term, opts...)
			b.Expect(err).To(MatchError(ContainSubstring(c.says)))
			b.Expect(err).To(MatchError(HavePrefix("fence: cannot open bucket ")))
		}
		b.Expect(b.bucket.Keys(ctx)).To(ConsistOf("taken"))

		kv := b.openBucket(l, fence.WithEpochKey("mine"))
		for _, key := range []string{"", "a b", ".a", "a.", "a..b", "*", "mine", "witness.mine"} {
			_, err := kv.Put(ctx, key, nil)
			b.Expect(err).To(HaveOccurred(), key)
			_, err = kv.Create(ctx, key, nil)
			b.Expect(err).To(HaveOccurred(), key)
			_, err = kv.Update(ctx, key, nil, 1)
			b.Expect(err).To(HaveOccurred(), key)
			_, err = kv.Get(ctx, key)
			b.Expect(err).To(HaveOccurred(), key)
			b.Expect(kv.Delete(ctx, key)).NotTo(Succeed(), key)
		}
		_, err = kv.Put(ctx, "mine-too", nil)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.bucket.Keys(ctx)).To(ConsistOf("taken", "mine", "mine-too"))
	})
}
