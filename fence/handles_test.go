package fence_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

// TestNoUpdateIsLostAmongHandlesOfOneTerm has three handles of one term count under one key, two of them on one connection. Each update that
// is acknowledged must have counted.
func TestNoUpdateIsLostAmongHandlesOfOneTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	onBuckets(t, func(b *bench) {
		l := b.leader("a")
		elsewhere, err := fence.OpenBucket(ctx, b.jetStream(natstest.Connect(b.T, b.server.Link(b.T))), bucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		var all sync.WaitGroup
		handles := []*fence.Bucket{b.openBucket(l), b.openBucket(l), elsewhere}
		var counted [6]int
		for n := range counted {
			all.Go(func() {
				for range 100 {
					switch err := count(handles[n%len(handles)]); {
					case err == nil:
						counted[n]++
					case !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
						b.Errorf("counting: %v", err)
					}
				}
			})
		}
		all.Wait()
		acknowledged := 0
		for _, n := range counted {
			acknowledged += n
		}
		b.Logf("%d updates acknowledged, %s counted", acknowledged, b.value("count"))
		b.Expect(b.value("count")).To(Equal(strconv.Itoa(acknowledged)))
	})
}

// count adds one to the number under a key, over the revision that it reads.
func count(kv *fence.Bucket) error {
	var number int
	var revision uint64
	switch found, err := kv.Get(ctx, "count"); {
	case err == nil:
		revision = found.Revision()
		if number, err = strconv.Atoi(string(found.Value())); err != nil {
			return err
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	_, err := kv.Update(ctx, "count", strconv.AppendInt(nil, int64(number)+1, 10), revision)
	return err
}

// The stream's handle makes its writes without a turn until the bucket is opened.
func TestWriteThatWasGivenUpBeforeABucketWasOpenedDoesNotComeOverItsUpdates(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		slow := b.server.Link(b.T)
		subject := "$KV." + bucketName + "."
		s, err := fence.OpenStream(ctx, b.jetStream(natstest.Connect(b.T, slow)), "KV_"+bucketName, subject+"epoch."+key, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		slow.Stall()
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = s.Publish(short, subject+"x", []byte("given up"))
		b.Expect(err).To(MatchError(context.DeadlineExceeded))

		kv := b.openBucket(l)
		_, err = kv.Create(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		slow.Heal()
		time.Sleep(time.Second)
		b.Expect(b.value("x")).To(Equal("1"))

		_, err = s.Publish(ctx, subject+"x", []byte("2"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.value("x")).To(Equal("2"))
	})
}

func TestHandlesOfAnOlderTermKeepNoneOfANewerOneWaiting(t *testing.T) {
	natstest.SkipIfShort(t)
	onBuckets(t, func(b *bench) {
		first := b.leader("a")
		old := b.openBucket(first)
		first.link.Stall()
		gone := make(chan error)
		go func() {
			_, err := old.Put(ctx, "x", []byte("late"))
			gone <- err
		}()
		now := b.openBucket(b.rival("b"))
		began := time.Now()
		_, err := now.Create(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		first.link.Heal()
		b.Expect(<-gone).To(HaveOccurred())
		b.Expect(b.value("x")).To(Equal("1"))
	})
}

func TestEpochsOfTermsThatAreOverAreForgotten(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		for range 5 {
			l := b.leader("a")
			b.open(l)
			b.openBucket(l)
			l.end()
		}
		b.open(b.leader("a"))
		b.Expect(fence.Epochs()).To(Equal(1))
	})
}
