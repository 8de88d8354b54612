package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
)

// limitSize limits the values of the bucket to so many bytes, headers included.
func (b *bench) limitSize(size int32) {
	b.Helper()
	b.change(ofBucket, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = size })
}

// expectTooLarge expects an error that names the size of the data and the limit.
func (b *bench) expectTooLarge(err error, size, limit, where string) {
	b.Helper()
	b.Expect(err).To(MatchError(nats.ErrMaxPayload))
	b.Expect(err).To(MatchError(ContainSubstring(size + " bytes of data and ")))
	b.Expect(err).To(MatchError(ContainSubstring(limit + " bytes (" + where)))
	b.Expect(errors.Is(err, fence.ErrFenced)).To(BeFalse())
	if where == "MaxMsgSize" {
		var api *jetstream.APIError
		b.Expect(errors.As(err, &api)).To(BeTrue())
		b.Expect(api.ErrorCode).To(BeEquivalentTo(10054), "message size exceeds maximum allowed")
	}
}

func TestValueOverTheLimitIsAnErrorThatNamesSizeAndLimit(t *testing.T) {
	natstest.SkipIfShort(t)
	for when, limitFirst := range map[string]bool{"limited before it is opened": true, "limited later": false} {
		t.Run(when, func(t *testing.T) {
			onBuckets(t, func(b *bench) {
				if limitFirst {
					b.limitSize(1000)
				}
				kv := b.openBucket(b.leader("a"))
				b.limitSize(1000)
				for size, c := range map[string]struct {
					bytes        int
					limit, where string
				}{
					"1000":    {1000, "1000", "MaxMsgSize"}, // with the headers
					"5000":    {5000, "1000", "MaxMsgSize"},
					"2097152": {2 << 20, "1048576", "max_payload"},
				} {
					value := []byte(strings.Repeat("x", c.bytes))
					_, err := kv.Put(ctx, "x", value)
					b.expectTooLarge(err, size, c.limit, c.where)
					_, err = kv.Create(ctx, "x", value)
					b.expectTooLarge(err, size, c.limit, c.where)
					_, err = kv.Update(ctx, "x", value, 0)
					b.expectTooLarge(err, size, c.limit, c.where)
				}
				_, err := kv.Create(ctx, "x", []byte(strings.Repeat("x", 500)))
				b.Expect(err).NotTo(HaveOccurred())
			})
		})
	}
}

func TestMessageOfABatchOverTheLimitIsAnErrorThatNamesSizeAndLimit(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		s := b.open(b.leader("a"))
		for i := range 3 {
			msgs := orders("1", "2", "3")
			msgs[i].Data = []byte(strings.Repeat("x", 1000))
			_, err := s.PublishBatch(ctx, msgs...)
			b.expectTooLarge(err, "1000", "1000", "MaxMsgSize")
			msgs[i].Data = []byte(strings.Repeat("x", 2<<20))
			_, err = s.PublishBatch(ctx, msgs...)
			b.expectTooLarge(err, "2097152", "1048576", "max_payload")
		}
		b.Expect(s.PublishBatch(ctx, orders("1", "2")...)).To(HaveLen(2))
		b.Expect(b.stored()).To(Equal([]string{"epoch a", "1", "2"}))
	}, atomic, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 1000 })
}

func TestBatchThatIsIncompleteForAnotherReasonIsNotTooLarge(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.streamLike("OTHER", atomic, func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"other.>"} })
		s := b.open(b.leader("a"))
		_, err := s.PublishBatch(ctx, append(orders("1"), &nats.Msg{Subject: "other.done"})...)
		b.Expect(err).To(MatchError(ContainSubstring("incomplete")))
		b.Expect(errors.Is(err, nats.ErrMaxPayload)).To(BeFalse())
	}, atomic, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 1000 })
}

func TestRecordOverTheLimitIsAnErrorThatNamesTheLimit(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		_, err := fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term)
		b.Expect(err).To(MatchError(nats.ErrMaxPayload))
		b.Expect(err).To(MatchError(ContainSubstring(`stream "ORDERS" takes 100 bytes (MaxMsgSize`)))
		b.Expect(b.stored()).To(BeEmpty())
	}, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 100 })
}
