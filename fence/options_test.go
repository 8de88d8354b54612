package fence_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

func TestWritesAreCountedByTheirResult(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		metrics := prometheus.NewPedanticRegistry()
		first := b.leader("a")
		old, err := fence.OpenStream(ctx, first.js, streamName, epochSubject, first.term, fence.WithRegisterer(metrics))
		b.Expect(err).NotTo(HaveOccurred())
		b.publish(old, "1")
		_, err = old.Publish(ctx, "elsewhere", nil)
		b.Expect(err).To(HaveOccurred())

		second := b.rival("b")
		_, err = fence.OpenBucket(ctx, second.js, bucketName, second.term, fence.WithRegisterer(metrics))
		b.Expect(err).NotTo(HaveOccurred())
		b.open(second)
		for range 2 {
			_, err = old.Publish(ctx, "orders.done", nil)
			b.Expect(err).To(MatchError(fence.ErrFenced))
		}
		b.Expect(testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP election_fence_writes_total Writes of leaders that the server stores only until a newer term begins, by their result.
# TYPE election_fence_writes_total counter
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="a",result="failed",stream="ORDERS"} 1
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="a",result="fenced",stream="ORDERS"} 2
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="a",result="stored",stream="ORDERS"} 1
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="b",result="failed",stream="KV_STATE"} 0
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="b",result="fenced",stream="KV_STATE"} 0
election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="b",result="stored",stream="KV_STATE"} 0
`))).To(Succeed())
	})
}

func TestWritesAreCountedInTheNamespaceAndByTheIdentity(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		metrics := prometheus.NewPedanticRegistry()
		l := b.leader("web-1-4711", election.WithMetricsIdentity("web-1"))
		s, err := fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term, fence.WithRegisterer(metrics), fence.WithMetricsNamespace("shop"))
		b.Expect(err).NotTo(HaveOccurred())
		b.publish(s, "1")
		b.Expect(testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP shop_election_fence_writes_total Writes of leaders that the server stores only until a newer term begins, by their result.
# TYPE shop_election_fence_writes_total counter
shop_election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="web-1",result="failed",stream="ORDERS"} 0
shop_election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="web-1",result="fenced",stream="ORDERS"} 0
shop_election_fence_writes_total{bucket="ELECTIONS",election="billing",identity="web-1",result="stored",stream="ORDERS"} 1
`))).To(Succeed())
		_, err = fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term, fence.WithMetricsNamespace("a b"))
		b.Expect(err).To(MatchError(election.ErrInvalidOption))
	})
}

func TestRegistererWithAnotherMetricOfTheNameIsRefused(t *testing.T) {
	onVirtualTime(t, func(b *bench) {
		l := b.leader("a")
		metrics := prometheus.NewRegistry()
		metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "election_fence_writes_total", Help: "Something else."}))
		_, err := fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term, fence.WithRegisterer(metrics))
		b.Expect(err).To(MatchError(ContainSubstring("WithRegisterer")))
		for _, none := range []prometheus.Registerer{nil, (*prometheus.Registry)(nil)} {
			s, err := fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term, fence.WithRegisterer(none))
			b.Expect(err).NotTo(HaveOccurred())
			b.publish(s, "1")
		}
	})
}
