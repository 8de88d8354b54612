package fence_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestUpdateThatTheNetworkHeldBackIsRefusedWhenItArrives(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.change(ofBucket, atomic)
		first := b.leader("a")
		old := b.openBucket(first)
		revision, err := old.Put(ctx, "x", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
		first.link.Stall()
		result := make(chan error)
		go func() {
			_, err := old.Update(ctx, "x", []byte("late"), revision)
			result <- err
		}()
		synctest.Wait()
		b.openBucket(b.rival("b"))
		first.link.Heal()
		b.Expect(<-result).To(MatchError(fence.ErrFenced))
		b.Expect(b.value("x")).To(Equal("1"))
	})
}

// way connects over one link, and over the next when it connects again.
type way struct{ links []*faultproxy.Link }

func (w *way) InProcessConn() (net.Conn, error) {
	next := w.links[0]
	w.links = append(w.links[1:], next)
	return next.InProcessConn()
}

func TestUpdateThatWasGivenUpDoesNotComeOverANewerOneOfTheSameHandle(t *testing.T) {
	onBuckets(t, func(b *bench) {
		l, first := b.leader("a"), b.server.Link(b.T)
		nc, err := nats.Connect("", nats.InProcessServer(&way{[]*faultproxy.Link{first, b.server.Link(b.T)}}), nats.ReconnectWait(time.Millisecond), nats.MaxReconnects(-1))
		b.Expect(err).NotTo(HaveOccurred())
		b.Cleanup(nc.Close)
		kv, err := fence.OpenBucket(ctx, b.jetStream(nc), bucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		revision, err := kv.Put(ctx, "x", []byte("0"))
		b.Expect(err).NotTo(HaveOccurred())
		first.OnRequest(func(m faultproxy.Message) {
			if m.Subject == "$KV."+bucketName+".x" {
				first.Stall()
			}
		})
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = kv.Update(limited, "x", []byte("given up"), revision)
		b.Expect(err).To(MatchError(context.DeadlineExceeded))
		b.Expect(nc.ForceReconnect()).To(Succeed())
		time.Sleep(time.Second)
		_, err = kv.Update(ctx, "x", []byte("1"), revision)
		b.Expect(err).NotTo(HaveOccurred())
		first.Heal()
		time.Sleep(time.Second)
		b.Expect(b.value("x")).To(Equal("1"))
	})
}

// One update was given up, and the turn of the first of two others ends while it writes the record again.
func TestOnlyOneOfTwoUpdatesOfOneRevisionIsStoredAfterTheServerWasAway(t *testing.T) {
	natstest.SkipIfShort(t)
	onBuckets(t, func(b *bench) {
		l, path := b.leader("a"), b.server.Link(b.T) // the election uses another link, and goes on
		kv, err := fence.OpenBucket(ctx, b.jetStream(natstest.Connect(b.T, path)), bucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		for away := time.Second; away <= 3*time.Second; away += 100 * time.Millisecond {
			revision, err := kv.Put(ctx, "x", []byte("0"))
			b.Expect(err).NotTo(HaveOccurred())
			path.Stall()
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err = kv.Update(short, "y", nil, 0)
			cancel()
			b.Expect(err).To(MatchError(context.DeadlineExceeded))

			results := make(chan error, 2)
			for _, value := range []string{"1", "2"} {
				go func() {
					long, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					_, err := kv.Update(long, "x", []byte(value), revision)
					results <- err
				}()
			}
			time.Sleep(away)
			path.Heal()
			b.Expect([]error{<-results, <-results}).To(ConsistOf(BeNil(), MatchError(jetstream.ErrKeyRevisionMismatch)), "away for %v", away)
			b.Expect(l.term.Valid()).To(BeTrue())
		}
	})
}

func TestHandleWorksOverALinkThatTakesLongerThanATurn(t *testing.T) {
	onBuckets(t, func(b *bench) {
		l, path := b.leader("a"), b.server.Link(b.T)
		kv, err := fence.OpenBucket(ctx, b.jetStream(natstest.Connect(b.T, path)), bucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		path.DelayReplies(1500 * time.Millisecond)
		var revision uint64
		for range 5 { // each of which is unresolved for the next
			long, cancel := context.WithTimeout(ctx, time.Minute)
			revision, err = kv.Update(long, "x", nil, revision)
			cancel()
			b.Expect(err).NotTo(HaveOccurred())
		}
	})
}

func TestWriteWhoseReplyIsLostKeepsNoOtherWaiting(t *testing.T) {
	onBuckets(t, func(b *bench) {
		l := b.leader("a")
		kv := b.openBucket(l)
		l.link.LoseReplies(faultproxy.Once(func(m faultproxy.Message) bool { return m.Request == "$KV."+bucketName+".x" }))
		long, cancel := context.WithTimeout(ctx, time.Hour)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = kv.Put(long, "x", nil)
		}()
		synctest.Wait()
		began := time.Now()
		_, err := kv.Update(ctx, "y", []byte("1"), 0)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(time.Since(began)).To(BeNumerically("<=", time.Second))
		cancel()
		<-gone
		_, err = kv.Put(ctx, "y", []byte("2"))
		b.Expect(err).NotTo(HaveOccurred())
	})
}
