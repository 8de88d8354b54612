package fence_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

func leaderOf(data []byte) string {
	var record struct{ Leader string }
	if err := json.Unmarshal(data, &record); err != nil {
		return err.Error()
	}
	return record.Leader
}

func TestWritesOfAnOlderTermAreRefusedFromTheFirstRecordOfANewerEpochOn(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		old := b.open(first)
		b.publish(old, "1")
		second := b.rival("b")
		b.publish(old, "2")
		b.Expect(first.term.Valid()).To(BeTrue(), "else the write would not have reached the server")
		now := b.open(second)

		_, err := old.Publish(ctx, "orders.done", []byte("3"))
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.Expect(err).To(MatchError(ContainSubstring(`of "b" has begun an epoch in stream "ORDERS"`)))
		b.publish(now, "4")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2", "epoch b", "4"}))
	})
}

func TestFencedHandleStaysClosedAndSendsNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		old := b.open(first)
		b.open(b.rival("b"))
		_, err := old.Publish(ctx, "orders.done", nil)
		b.Expect(err).To(MatchError(fence.ErrFenced))

		b.forbid(first, "orders.", "$JS.API.STREAM.MSG.GET."+streamName)
		_, again := old.Publish(ctx, "orders.done", nil)
		b.Expect(again).To(MatchError(err.Error()))
		_, again = old.PublishBatch(ctx, nats.NewMsg("orders.done"))
		b.Expect(again).To(MatchError(fence.ErrFenced))
	})
}

func TestWriteThatTheNetworkHeldBackIsRefusedWhenItArrives(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		old := b.open(first)
		first.link.Stall()
		result := make(chan error)
		go func() {
			limited, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			_, err := old.Publish(limited, "orders.done", []byte("late"))
			result <- err
		}()
		synctest.Wait()
		time.Sleep(2 * ttl)
		b.publish(b.open(b.leader("b")), "in time")
		first.link.Heal()
		b.Expect(<-result).To(MatchError(fence.ErrFenced))
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "epoch b", "in time"}))
	})
}

func TestDeposedLeaderCannotBeginAnEpochAgain(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		b.open(b.rival("b"))
		b.Expect(first.term.Valid()).To(BeTrue())
		_, err := fence.OpenStream(ctx, first.js, streamName, epochSubject, first.term)
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.Expect(b.stored()).To(Equal([]string{"epoch b"}))

		time.Sleep(ttl)
		b.Expect(first.term.Valid()).To(BeFalse())
		b.forbid(first, "orders.", "$JS.API.STREAM.MSG.GET."+streamName, "$JS.API.STREAM.INFO."+streamName)
		_, err = fence.OpenStream(ctx, first.js, streamName, epochSubject, first.term)
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.Expect(err).To(MatchError(election.ErrNotLeader))
	})
}

func TestBeginningThatArrivesLateIsRefusedAndOpensNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		result := b.openStalled(first)
		b.open(b.rival("b"))
		first.link.Heal()
		b.Expect(<-result).To(MatchError(fence.ErrFenced))
		b.Expect(b.stored()).To(Equal([]string{"epoch b"}))
	})
}

func TestEveryNewerTermBeginsItsEpochOverAnOlderOne(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		b.publish(b.open(l), "1")
		for range 3 {
			l.end()
			l = b.leader("b")
			b.publish(b.open(l), "2")
		}
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "epoch b", "2", "epoch b", "2", "epoch b", "2"}))
	})
}

func TestHandlesOfOneTermShareItsEpoch(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		one, two := b.open(l), b.open(l)
		b.publish(one, "1")
		b.publish(two, "2")
		b.publish(one, "3")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2", "3"}))
	})
}

func TestOpeningFindsTheEpochBegunWhenTheReplyIsLost(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		l.link.LoseReplies(faultproxy.Once(func(m faultproxy.Message) bool { return m.Request == epochSubject }))
		b.publish(b.open(l), "1")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1"}))
	})
}

func TestHandleBeginsItsEpochAgainWhenTheRecordWasDropped(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		s := b.open(l)
		b.Expect(b.stream.Purge(ctx)).To(Succeed())
		b.publish(s, "1")
		b.publish(s, "2")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2"}))
	})
}

func TestRecordThatWasDroppedIsNotBegunAgainByATermThatIsOver(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		old := b.open(first)
		first.link.Cut()
		time.Sleep(2 * ttl)
		first.link.Heal()
		now := b.open(b.leader("b"))
		b.Expect(b.stream.Purge(ctx)).To(Succeed())
		_, err := old.Publish(ctx, "orders.done", []byte("late"))
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.publish(now, "1")
		b.Expect(b.stored()).To(Equal([]string{"epoch b", "1"}))
	})
}

func TestBeginningThatArrivesInAnEmptyStreamAfterItsLeaseOpensNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		result := b.openStalled(first)
		time.Sleep(2 * ttl)
		now := b.open(b.leader("b"))
		b.Expect(b.stream.Purge(ctx)).To(Succeed()) // the late record finds nothing, as when it was sent
		first.link.Heal()
		b.Expect(<-result).To(MatchError(fence.ErrFenced))
		b.publish(now, "1")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "epoch b", "1"}))
	})
}

func recordOf(t election.Term) []byte {
	data, _ := json.Marshal(map[string]any{"token": t.Token(), "election": t.Key, "leader": t.Name, "term": t.Number})
	return data
}

func TestRecordOutlivesTheAgeOfAStreamThatAllowsTTLs(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		s := b.open(l)
		b.publish(s, "1")
		time.Sleep(time.Hour)
		b.publish(s, "2")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "2"}))
		info, err := b.stream.Info(ctx)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(info.State.LastSeq).To(BeEquivalentTo(3), "the record was written once")
	}, func(cfg *jetstream.StreamConfig) { cfg.MaxAge, cfg.AllowMsgTTL = time.Minute, true })
}

func TestRecordThatAgedIsBegunAgain(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		b.publish(s, "1")
		time.Sleep(2 * time.Hour)
		b.publish(s, "2")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "2"}))
	}, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Hour })
}

func TestLeaderMayWriteWhileItWindsUpAndNotAfter(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := &leader{link: b.server.Link(b.T)}
		nc := b.server.Connect(b.T)
		l.js = b.jetStream(nc)
		e, err := election.NewElection("a", key, b.server.Bucket(b.T, nc, ttl), election.WithSplay(0))
		b.Expect(err).NotTo(HaveOccurred())
		handles := make(chan *fence.Stream, 1)
		ended := make(chan error)
		go func() {
			ended <- e.Run(ctx, func(work context.Context, term election.Term) error {
				s, err := fence.OpenStream(work, l.js, streamName, epochSubject, term)
				if err != nil {
					return err
				}
				handles <- s
				<-work.Done()
				b.Expect(term.Valid()).To(BeFalse())
				_, err = s.Publish(ctx, "orders.done", []byte("the last"))
				return err
			})
		}()
		s := <-handles
		e.Stop()
		b.Expect(<-ended).To(Succeed())
		_, err = s.Publish(ctx, "orders.done", []byte("after it"))
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.Expect(err).To(MatchError(election.ErrNotLeader))
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "the last"}))
	})
}
