package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/link"
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
		second := b.usurper("b")
		b.publish(old, "2")
		b.Expect(first.term.Valid()).To(BeTrue(), "it would not have come to the server else")
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
		b.open(b.usurper("b"))
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
		b.open(b.usurper("b"))
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
		b.open(b.usurper("b"))
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
			l.Stop()
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
		l.link.LoseReplies(link.Once(func(m link.Message) bool { return m.Request == epochSubject }))
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
		b.Expect(b.stream.Purge(ctx)).To(Succeed()) // what comes late finds nothing, as it did when it was sent
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
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		b.publish(s, "1")
		time.Sleep(time.Hour)
		b.publish(s, "2")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "2"}))
	}, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = time.Minute })
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

func TestWriteWhoseReplyIsLostIsAnErrorAndNotTriedAgain(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		s := b.open(l)
		l.link.LoseReplies(func(m link.Message) bool { return m.Request == "orders.done" })
		_, err := s.Publish(ctx, "orders.done", []byte("1"))
		b.Expect(err).To(MatchError(context.DeadlineExceeded))
		b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())
		l.link.Heal()
		b.publish(s, "2")
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2"}))
	})
}

func TestMessageGoesOutAsItIsAndIsNotChanged(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		m := &nats.Msg{Subject: "orders.done", Data: []byte("1"), Header: nats.Header{"Nats-Msg-Id": {"x"}, "colour": {"red", "blue"}}}
		ack, err := s.PublishMsg(ctx, m)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(m.Header).To(Equal(nats.Header{"Nats-Msg-Id": {"x"}, "colour": {"red", "blue"}}))
		kept, err := b.stream.GetMsg(ctx, ack.Sequence)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(kept.Header["colour"]).To(Equal([]string{"red", "blue"}))

		ack, err = s.PublishMsg(ctx, m)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(ack.Duplicate).To(BeTrue())
	})
}

func TestOwnExpectationThatFailsIsNoFencing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		m := &nats.Msg{Subject: "orders.done", Header: nats.Header{jetstream.ExpectedLastSeqHeader: {"17"}}}
		_, err := s.PublishMsg(ctx, m)
		var api *jetstream.APIError
		b.Expect(errors.As(err, &api)).To(BeTrue())
		b.Expect(api.ErrorCode).To(Equal(jetstream.JSErrCodeStreamWrongLastSequence))
		b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())
		m.Header.Set(jetstream.ExpectedLastSeqHeader, "1")
		_, err = s.PublishMsg(ctx, m)
		b.Expect(err).NotTo(HaveOccurred())
	})
}

func orders(data ...string) (msgs []*nats.Msg) {
	for _, d := range data {
		msgs = append(msgs, &nats.Msg{Subject: "orders.done", Data: []byte(d)})
	}
	return msgs
}

func TestBatchIsStoredAsOneOrNotAtAll(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		old := b.open(b.leader("a"))
		b.Expect(old.Atomic()).To(BeTrue())
		b.Expect(old.PublishBatch(ctx, orders("1", "2", "3")...)).To(Equal([]uint64{2, 3, 4}))

		failing := orders("4", "5")
		failing[1].Header = nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"99"}}
		_, err := old.PublishBatch(ctx, failing...)
		b.Expect(err).To(HaveOccurred())
		b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())

		b.open(b.usurper("b"))
		_, err = old.PublishBatch(ctx, orders("6", "7")...)
		b.Expect(err).To(MatchError(fence.ErrFenced))
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2", "3", "epoch b"}))
	}, atomic)
}

func TestMessageOfABatchMayDemandALastSequenceOfItsOwn(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		own := &nats.Msg{Subject: "orders.total", Data: []byte("total"), Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}}}
		b.Expect(s.PublishBatch(ctx, append(orders("1"), own)...)).To(Equal([]uint64{2, 3}))
		another := &nats.Msg{Subject: "orders.other", Header: own.Header}
		_, err := s.PublishBatch(ctx, own, another)
		b.Expect(err).To(MatchError(ContainSubstring("none is left to make that of the epoch")))
		_, err = s.PublishBatch(ctx, append(orders("1"), another, another)...)
		b.Expect(err).To(MatchError(ContainSubstring("demand it once, and first")))
		_, err = s.PublishBatch(ctx, &nats.Msg{Subject: "orders.other"}, another)
		b.Expect(err).To(MatchError(ContainSubstring("demand it once, and first")))
		_, err = s.PublishMsg(ctx, own)
		b.Expect(err).To(MatchError(ContainSubstring("publish it in a batch")))
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "total"}))
	}, atomic)
}

func TestLargeBatchIsStoredAsOne(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		sequences, err := s.PublishBatch(ctx, orders(strings.Split(strings.Repeat("x", 1000), "")...)...)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(sequences).To(HaveLen(1000))
		b.Expect(sequences[999]).To(BeEquivalentTo(1001))
		_, err = s.PublishBatch(ctx, orders(strings.Split(strings.Repeat("x", 1001), "")...)...)
		b.Expect(err).To(MatchError(ContainSubstring("1000")))
		b.Expect(b.stored()).To(HaveLen(1001))
	}, atomic)
}

func TestBatchGoesOneByOneWhereTheStreamHasNoAtomicOnes(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		old := b.open(b.leader("a"))
		b.Expect(old.Atomic()).To(BeFalse())
		b.Expect(old.PublishBatch(ctx, orders("1", "2")...)).To(Equal([]uint64{2, 3}))
		failing := orders("3", "4", "5")
		failing[1].Subject = "elsewhere"
		sequences, err := old.PublishBatch(ctx, failing...)
		b.Expect(err).To(MatchError(ContainSubstring("message 2 of 3")))
		b.Expect(sequences).To(Equal([]uint64{4}))
		b.Expect(old.PublishBatch(ctx)).To(BeEmpty())
	})
}

func TestMessageForAnotherStreamIsRefused(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.streamLike("OTHER", func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"other.>"} })
		s := b.open(b.leader("a"))
		_, err := s.Publish(ctx, "other.done", nil)
		b.Expect(err).To(MatchError(ContainSubstring("expected stream does not match")))
		b.publish(s, "1")
	})
}

func TestBadInputOfAStreamIsAClearErrorAndWritesNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		gone := b.leader("gone")
		gone.Stop()
		l := b.leader("b")
		b.streamLike("MIRROR", func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.Mirror = nil, &jetstream.StreamSource{Name: streamName}
		})
		b.streamLike("SOURCED", func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.Sources = []string{"sourced.>"}, []*jetstream.StreamSource{{Name: streamName}}
		})
		b.streamLike("EACH", func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.Discard, cfg.DiscardNewPerSubject, cfg.MaxMsgsPerSubject = []string{"each.>"}, jetstream.DiscardNew, true, 1
		})
		b.streamLike("SILENT", func(cfg *jetstream.StreamConfig) { cfg.Subjects, cfg.NoAck = []string{"silent.>"}, true })
		b.streamLike("INTEREST", func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.Retention = []string{"interest.>"}, jetstream.InterestPolicy
		})
		b.streamLike("MOVED", func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.SubjectTransform = []string{"moved.>"}, &jetstream.SubjectTransformConfig{Source: "moved.>", Destination: "new.>"}
		})
		_, err := b.js.Publish(ctx, "orders.other", []byte("an order"))
		b.Expect(err).NotTo(HaveOccurred())
		lease := "$KV.ELECTIONS." + key
		for _, c := range []struct {
			stream, subject string
			term            election.Term
			says            string
		}{
			{streamName, "", l.term, `epoch subject "" is not one to publish to`},
			{streamName, "orders.*", l.term, "without wildcards"},
			{streamName, "orders epoch", l.term, "without wildcards, blanks"},
			{streamName, "orders..epoch", l.term, "not one to publish to"},
			{streamName, "billing.epoch", l.term, `it does not store the epoch subject "billing.epoch", only ["orders.>"]`},
			{streamName, "orders", l.term, "it does not store the epoch subject"},
			{streamName, "orders.other", l.term, "is no epoch"},
			{streamName, epochSubject, election.Term{}, "no term given"},
			{streamName, epochSubject, gone.term, "is over"},
			{"NOSUCH", epochSubject, l.term, "stream not found"},
			{"", epochSubject, l.term, "stream"},
			{"MIRROR", epochSubject, l.term, `open its origin, stream "ORDERS"`},
			{"SOURCED", "sourced.epoch", l.term, `it has sources, stream "ORDERS" the first`},
			{"EACH", "each.epoch", l.term, "only 1 messages for each subject"},
			{"SILENT", "silent.epoch", l.term, "turn NoAck off"},
			{"INTEREST", "interest.epoch", l.term, "would drop the epoch"},
			{"MOVED", "moved.epoch", l.term, `("moved.>" under "new.>")`},
			{"KV_ELECTIONS", lease, l.term, "the key of the election itself"},
		} {
			_, err := fence.OpenStream(ctx, l.js, c.stream, c.subject, c.term)
			b.Expect(err).To(MatchError(ContainSubstring(c.says)), "%+v", c)
			b.Expect(err).To(MatchError(HavePrefix("fence: cannot open stream ")))
		}
		_, err = fence.OpenStream(ctx, nil, streamName, epochSubject, l.term, nil)
		b.Expect(err).To(MatchError(ContainSubstring("no JetStream given")))
		_, err = fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term, fence.WithEpochKey("x"))
		b.Expect(err).To(MatchError(ContainSubstring("WithEpochKey is for buckets")))
		b.Expect(b.stored()).To(Equal([]string{"an order"}))

		s := b.open(l)
		_, err = s.PublishMsg(ctx, nil)
		b.Expect(err).To(MatchError(ContainSubstring("no message given")))
		_, err = s.Publish(ctx, epochSubject, nil)
		b.Expect(err).To(MatchError(ContainSubstring("the subject of the epochs")))
		b.Expect(b.stored()).To(Equal([]string{"an order", "epoch b"}))
	})
}

func TestEpochOfAnotherElectionIsLeftAlone(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		other := l.term
		other.Key = "shipping"
		_, err := b.js.Publish(ctx, epochSubject, recordOf(other))
		b.Expect(err).NotTo(HaveOccurred())
		_, err = fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term)
		b.Expect(err).To(MatchError(ContainSubstring(`are those of election "shipping", not of "billing"`)))
	})
}
