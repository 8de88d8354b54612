package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

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
		b.Expect(old.PublishBatch(ctx)).To(BeEmpty())
		b.Expect(old.PublishBatch(ctx, orders("1", "2", "3")...)).To(Equal([]uint64{2, 3, 4}))

		failing := orders("4", "5")
		failing[1].Header = nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"99"}}
		_, err := old.PublishBatch(ctx, failing...)
		b.Expect(err).To(HaveOccurred())
		b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())

		b.open(b.rival("b"))
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
	natstest.SkipIfShort(t)
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
