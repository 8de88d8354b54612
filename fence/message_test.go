package fence_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
)

func TestNoHeaderOfAMessageTakesTheDemandAway(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		old := b.open(b.leader("a"))
		now := b.open(b.rival("b"))
		b.publish(now, "1")
		for _, value := range []string{"", "0", "x", epochSubject} {
			for _, h := range []nats.Header{
				{jetstream.ExpectedLastSubjSeqHeader: {value}},
				{jetstream.ExpectedLastSubjSeqSubjHeader: {value}},
				{jetstream.ExpectedLastSubjSeqHeader: {value}, jetstream.ExpectedLastSubjSeqSubjHeader: {value}},
				{jetstream.ExpectedStreamHeader: {value}},
				{jetstream.ExpectedLastSubjSeqHeader: {}, jetstream.ExpectedLastSubjSeqSubjHeader: {}},
			} {
				_, err := old.PublishMsg(ctx, &nats.Msg{Subject: "orders.done", Data: []byte("stale"), Header: h})
				b.Expect(err).To(HaveOccurred(), "%v", h)
				_, err = old.PublishBatch(ctx, &nats.Msg{Subject: "orders.done", Data: []byte("stale"), Header: h}, &nats.Msg{Subject: "orders.done", Data: []byte("stale"), Header: h})
				b.Expect(err).To(HaveOccurred(), "%v", h)
			}
		}
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "epoch b", "1"}))
	}, atomic)
}

func TestMessageThatWouldUndoTheEpochIsRefused(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		for _, c := range []struct {
			header nats.Header
			says   string
		}{
			{nats.Header{jetstream.MsgRollup: {"all"}}, "would purge the stream"},
			{nats.Header{jetstream.MsgRollup: {"ALL"}}, "would purge the stream"},
			{nats.Header{jetstream.MsgRollup: {" all"}}, "would purge the stream"}, // servers leave out the space around a value
			{nats.Header{jetstream.MsgRollup: {"all\n"}}, "would purge the stream"},
			{nats.Header{jetstream.MsgRollup: {"\tAll "}}, "would purge the stream"},
			{nats.Header{jetstream.ScheduleHeader: {"@at 2030-01-01T00:00:00Z"}, jetstream.ScheduleTargetHeader: {epochSubject}}, "the subject of the epochs"},
			{nats.Header{jetstream.ExpectedLastSubjSeqSubjHeader: {"orders.other"}}, "no last sequence of it"},
		} {
			_, err := s.PublishMsg(ctx, &nats.Msg{Subject: "orders.done", Header: c.header})
			b.Expect(err).To(MatchError(ContainSubstring(c.says)))
		}
		_, err := s.PublishMsg(ctx, &nats.Msg{Subject: "orders.done", Data: []byte("sum"), Header: nats.Header{jetstream.MsgRollup: {"sub"}}})
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "sum"}))
	}, func(cfg *jetstream.StreamConfig) { cfg.AllowRollup, cfg.AllowMsgSchedules = true, true })
}

func TestHandleWritesToItsOwnStreamOnly(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		sum := b.streamLike("SUM", func(cfg *jetstream.StreamConfig) { // where the record is the same, at the same sequence
			cfg.Subjects, cfg.Sources = []string{"sum.>"}, []*jetstream.StreamSource{{Name: streamName}}
		})
		time.Sleep(5 * time.Second)
		_, err := s.Publish(ctx, "sum.done", []byte("x"))
		b.Expect(err).To(MatchError(ContainSubstring("expected stream does not match")))
		_, err = s.PublishBatch(ctx, append(orders("1"), &nats.Msg{Subject: "sum.done"})...)
		b.Expect(err).To(HaveOccurred())
		info, err := sum.Info(ctx)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(info.State.Msgs).To(BeEquivalentTo(1))
		b.publish(s, "1")
	}, atomic)
}

func TestHeaderWithoutValuesIsNone(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		_, err := s.PublishMsg(ctx, &nats.Msg{Subject: "orders.done", Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {}, "colour": {}}})
		b.Expect(err).NotTo(HaveOccurred())
	})
}

func TestLargeBatchKeepsToItsContext(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		s := b.open(l)
		l.link.Stall()
		limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := s.PublishBatch(limited, orders(strings.Split(strings.Repeat("x", 500), "")...)...)
		b.Expect(err).To(HaveOccurred())
		b.Expect(time.Since(began)).To(BeNumerically("<=", 100*time.Millisecond))
		l.link.Heal()
	}, atomic)
}

func TestRecordIsExemptFromAnAgeThatIsSetLater(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		first := b.leader("a")
		old := b.open(first)
		b.open(b.rival("b"))
		b.change(streamName, maxAge(time.Second))
		time.Sleep(3 * time.Second)
		b.Expect(first.term.Valid()).To(BeTrue())
		_, err := old.Publish(ctx, "orders.done", []byte("stale"))
		b.Expect(err).To(MatchError(fence.ErrFenced))
	}, func(cfg *jetstream.StreamConfig) { cfg.AllowMsgTTL = true })
}

func TestWorkQueueForgetsOlderEpochs(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.publish(b.open(b.leader("a")), "1")
		b.publish(b.open(b.rival("b")), "2")
		b.Expect(b.stored()).To(Equal([]string{"1", "epoch b", "2"}), "else a consumer that takes the newer record brought back the older")
	}, func(cfg *jetstream.StreamConfig) { cfg.Retention = jetstream.WorkQueuePolicy })
}
