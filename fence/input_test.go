package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

func TestWriteWhoseReplyIsLostIsAnErrorAndNotTriedAgain(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		s := b.open(l)
		l.link.LoseReplies(func(m faultproxy.Message) bool { return m.Request == "orders.done" })
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

func TestBadInputOfAStreamIsAClearErrorAndWritesNothing(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		gone := b.leader("gone")
		gone.end()
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

// Whoever may read a stream can have the server send its answer to any subject of it, with the headers of the message that was read.
func TestStoredAnswerIsNoRemovalOfTheEpoch(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		b.open(l)
		_, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: "orders.removed", Header: nats.Header{"KV-Operation": {"DEL"}}})
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.js.Conn().PublishRequest("$JS.API.DIRECT.GET."+streamName+".orders.removed", epochSubject, nil)).To(Succeed())
		synctest.Wait()
		_, err = fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term)
		b.Expect(err).To(MatchError(ContainSubstring("is no epoch")))
	}, func(cfg *jetstream.StreamConfig) { cfg.AllowDirect = true })
}
