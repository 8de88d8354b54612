package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

// cases are the servers to measure on.
var cases = []struct {
	name     string
	servers  func(testing.TB) servers
	replicas int
}{
	{"nats-R1", func(tb testing.TB) servers { return natstest.StartTCP(tb) }, 1},
	{"nats-R3", func(tb testing.TB) servers { return startCluster(tb, 3) }, 3},
}

// BenchmarkFence measures what it costs to publish to a stream through a handle of package fence, beside plain publishing of
// the same messages in the same run: one after the other, turn by turn, and by 16 writers at once.
func BenchmarkFence(b *testing.B) {
	for _, on := range cases {
		b.Run("sequential/"+on.name, func(b *testing.B) {
			plain, fenced, _ := publishers(b, on.servers(b), on.replicas)
			var costs [2]sample
			for n := 0; b.Loop(); n++ {
				for i := range 2 {
					which := (n + i) % 2 // neither is always first
					began := time.Now()
					if err := []func() error{plain, fenced}[which](); err != nil {
						b.Fatal(err)
					}
					costs[which].add(time.Since(began), time.Microsecond)
				}
			}
			b.ReportMetric(quantile(costs[0], 0.5), "plain-median-µs")
			b.ReportMetric(quantile(costs[1], 0.5), "fenced-median-µs")
			b.ReportMetric(quantile(costs[1], 0.5)/quantile(costs[0], 0.5), "ratio")
		})
		b.Run("16-writers/"+on.name, func(b *testing.B) {
			plain, fenced, batch := publishers(b, on.servers(b), on.replicas)
			var rates [3]sample
			const writers, messages, size = 16, 3200, 50
			for b.Loop() {
				for i, publish := range []func() error{plain, fenced, batch} {
					calls := messages
					if i == 2 {
						calls = messages / size
					}
					rates[i] = append(rates[i], messages/together(b, writers, calls, publish).Seconds())
				}
			}
			b.ReportMetric(quantile(rates[0], 0.5), "plain-msgs/s")
			b.ReportMetric(quantile(rates[1], 0.5), "fenced-msgs/s")
			b.ReportMetric(quantile(rates[2], 0.5), "fenced-batches-of-50-msgs/s")
		})
	}
}

// BenchmarkFencedUpdate measures Update of one key: that of nats.go, and that of package fence on a bucket as nats.go makes them
// and on one whose stream allows atomic batches.
func BenchmarkFencedUpdate(b *testing.B) {
	for _, on := range cases {
		b.Run(on.name, func(b *testing.B) {
			f := newFleet(b, on.servers(b), handoverTTL, on.replicas)
			nc := f.connect()
			term, _ := f.lead(nc, "fence").Term()
			js, ctx := f.jetStream(nc), context.Background()
			names := []string{"plain", "fenced", "fenced-atomic"}
			var updates []func(revision uint64) (uint64, error)
			for i, name := range names {
				kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Replicas: on.replicas})
				if err != nil {
					b.Fatal(err)
				}
				if i == 2 {
					s, err := js.Stream(ctx, "KV_"+name)
					if err != nil {
						b.Fatal(err)
					}
					cfg := s.CachedInfo().Config
					cfg.AllowAtomicPublish = true
					if _, err := js.UpdateStream(ctx, cfg); err != nil {
						b.Fatal(err)
					}
				}
				update := func(r uint64) (uint64, error) { return kv.Update(ctx, "x", []byte("value"), r) }
				if i > 0 {
					handle, err := fence.OpenBucket(ctx, js, name, term)
					if err != nil {
						b.Fatal(err)
					}
					update = func(r uint64) (uint64, error) { return handle.Update(ctx, "x", []byte("value"), r) }
				}
				updates = append(updates, update)
			}
			costs, revisions := make([]sample, len(names)), make([]uint64, len(names))
			for b.Loop() {
				for i, update := range updates {
					began := time.Now()
					var err error
					if revisions[i], err = update(revisions[i]); err != nil {
						b.Fatal(err)
					}
					costs[i].add(time.Since(began), time.Microsecond)
				}
			}
			for i, name := range names {
				b.ReportMetric(quantile(costs[i], 0.5), name+"-median-µs")
			}
		})
	}
}

// publishers returns what publishes one message to a stream, plainly and fenced, and a batch of 50 fenced.
func publishers(b *testing.B, s servers, replicas int) (plain, fenced, batch func() error) {
	b.Helper()
	f := newFleet(b, s, handoverTTL, replicas)
	nc := f.connect()
	term, leads := f.lead(nc, "fence").Term()
	if !leads {
		b.Fatal("nobody leads")
	}
	js, ctx := f.jetStream(nc), context.Background()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: replicas, AllowAtomicPublish: true, MaxMsgs: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	handle, err := fence.OpenStream(ctx, js, "ORDERS", "orders.epoch", term)
	if err != nil {
		b.Fatal(err)
	}
	m := &nats.Msg{Subject: "orders.done", Data: make([]byte, 128)}
	many := make([]*nats.Msg, 50)
	for i := range many {
		many[i] = m
	}
	plain = func() error { _, err := js.PublishMsg(ctx, m); return err }
	fenced = func() error { _, err := handle.PublishMsg(ctx, m); return err }
	batch = func() error { _, err := handle.PublishBatch(ctx, many...); return err }
	return plain, fenced, batch
}

// together has so many goroutines make so many calls in all, and returns how long it took.
func together(b *testing.B, writers, calls int, call func() error) time.Duration {
	b.Helper()
	began := time.Now()
	var all sync.WaitGroup
	var made atomic.Int64
	for range writers {
		all.Go(func() {
			for made.Add(1) <= int64(calls) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
