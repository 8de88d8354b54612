package fence_test

import (
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
)

type limits func(cfg *jetstream.StreamConfig)

func discardNew(cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardNew }

func maxAge(age time.Duration) limits {
	return func(cfg *jetstream.StreamConfig) { cfg.MaxAge, cfg.Duplicates = age, min(age, time.Minute) }
}

func TestStreamWhoseLimitsWouldDropTheRecordOrTheDataIsRefusedAndNothingWritten(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		limits limits
		says   string
	}{
		"MaxMsgs":  {func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 }, "it keeps at most 1 messages (MaxMsgs), and the record of the epoch and one write are 2: raise the limit"},
		"MaxBytes": {func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 500 }, "it keeps at most 500 bytes (MaxBytes), and the record of the epoch alone takes "},
		"MaxAge":   {maxAge(10 * time.Minute), "it keeps messages for 10m0s (MaxAge), and the record of the epoch no longer, while the lease of an older leader may last 1h0m0s: allow TTLs per message"},
		"DenyPurge": {func(cfg *jetstream.StreamConfig) {
			cfg.Retention, cfg.DenyPurge = jetstream.WorkQueuePolicy, true
		}, "it is a work queue that cannot be purged (DenyPurge)"},
	} {
		for discard, change := range map[string]limits{"old": func(*jetstream.StreamConfig) {}, "new": discardNew} {
			t.Run(name+", discard "+discard, func(t *testing.T) {
				onVirtualTime(t, func(b *bench) {
					l := b.leader("a")
					_, err := b.js.Publish(ctx, "orders.done", []byte("1"))
					b.Expect(err).NotTo(HaveOccurred())
					_, err = fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term)
					b.Expect(err).To(MatchError(ContainSubstring(c.says)))
					b.Expect(b.stored()).To(Equal([]string{"1"}))
				}, c.limits, change)
			})
		}
	}
}

func TestStreamWhoseLimitsKeepTheRecordAndTheDataIsOpened(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, limits := range map[string]limits{
		"MaxMsgs":                 func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 2 },
		"MaxBytes":                func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 800 },
		"MaxMsgsPerSubject":       func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = 1 },
		"MaxMsgSize":              func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 400 },
		"MaxAge":                  maxAge(time.Hour),
		"MaxAge with AllowMsgTTL": func(cfg *jetstream.StreamConfig) { maxAge(time.Minute)(cfg); cfg.AllowMsgTTL = true },
		"MaxMsgs, discard new":    func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 2; discardNew(cfg) },
		"MaxBytes, discard new":   func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 800; discardNew(cfg) },
		"per subject, one batch":  func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = 1; atomic(cfg); discardNew(cfg) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(b *bench) {
				b.publish(b.open(b.leader("a")), "1")
				b.Expect(b.stored()).To(Equal([]string{"epoch a", "1"}))
			}, limits)
		})
	}
}

func TestFullStreamIsAnErrorThatSaysWhatToDo(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		b.publish(b.open(b.leader("a")), "1")
		second := b.rival("b")
		_, err := fence.OpenStream(ctx, second.js, streamName, epochSubject, second.term)
		b.Expect(err).To(MatchError(ContainSubstring("if it is full, remove messages or raise MaxMsgs or MaxBytes: ")))
		b.Expect(err).To(MatchError(ContainSubstring("maximum messages exceeded")))
	}, discardNew, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 2 })
}

func TestBucketWhoseLimitsWouldDropTheRecordOrKeysIsRefusedAndNothingWritten(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		limits limits
		says   string
	}{
		"discard old by number": {func(cfg *jetstream.StreamConfig) {
			cfg.Discard, cfg.MaxMsgs = jetstream.DiscardOld, 1000
		}, "at its limits (MaxMsgs 1000, MaxBytes -1) it drops the oldest keys, the record of the epoch among them: discard new messages instead"},
		"discard old by size": {func(cfg *jetstream.StreamConfig) {
			cfg.Discard, cfg.MaxBytes = jetstream.DiscardOld, 1<<20
		}, "at its limits (MaxMsgs -1, MaxBytes 1048576)"},
		"MaxMsgs":            {func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 }, "it keeps at most 1 messages (MaxMsgs), and the record of the epoch and one write are 2"},
		"MaxMsgs of a batch": {func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 2; atomic(cfg) }, "it keeps at most 2 messages (MaxMsgs), and the record of the epoch and one write are 3"},
		"MaxBytes":           {func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 500 }, "it keeps at most 500 bytes (MaxBytes)"},
		"TTL":                {maxAge(10 * time.Minute), "it keeps messages for 10m0s (MaxAge)"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(b *bench) {
				l := b.leader("a")
				b.change(ofBucket, c.limits)
				_, err := fence.OpenBucket(ctx, l.js, bucketName, l.term)
				b.Expect(err).To(MatchError(ContainSubstring(c.says)))
				b.Expect(b.bucket.Status(ctx)).To(HaveField("Values()", BeZero()))
			})
		})
	}
}

func TestBucketWhoseLimitsKeepTheRecordAndAKeyIsOpened(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, limits := range map[string]limits{
		"MaxMsgs":            func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 2 },
		"MaxMsgs of a batch": func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 3; atomic(cfg) },
		"MaxBytes":           func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = 1000; atomic(cfg) },
		"TTL":                func(cfg *jetstream.StreamConfig) { maxAge(time.Minute)(cfg); cfg.AllowMsgTTL = true },
		"discard old":        func(cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardOld },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(b *bench) {
				b.change(ofBucket, limits)
				kv := b.openBucket(b.leader("a"))
				_, err := kv.Create(ctx, "x", []byte("1"))
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(b.value("x")).To(Equal("1"))
				b.Expect(b.bucket.Get(ctx, "epoch."+key)).NotTo(BeNil())
			})
		})
	}
}
