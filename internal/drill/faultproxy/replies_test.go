package faultproxy_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
)

func TestStalledRepliesLetRequestsPass(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.StallReplies()
		done := make(chan error, 1)
		go func() { done <- r.put("a", "applied") }()

		time.Sleep(time.Second)
		r.Expect(r.stored("a")).To(Equal("applied"))
		r.Expect(done).NotTo(Receive())

		r.link.Heal()
		r.Expect(<-done).To(succeed())
	})
}

func TestRequestIsAppliedThoughItsReplyIsLost(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.LoseReplies(nil)
		r.Expect(r.put("a", "applied")).To(timeOut)
		r.Expect(r.stored("a")).To(Equal("applied"))

		// The connection itself is unharmed: PONGs still pass.
		r.Expect(r.nc.FlushTimeout(time.Second)).To(succeed())
		r.link.Heal()
		r.Expect(r.put("a", "again")).To(succeed())
		r.Expect(r.nc.Stats().Reconnects).To(BeZero())
	})
}

func TestOnlyMatchingRepliesAreLost(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.LoseReplies(toKey("a"))
		r.Expect(r.put("a", "applied")).To(timeOut)
		r.Expect(r.put("b", "fine")).To(succeed())

		// Reading the key back is another request than writing it.
		e, err := r.client.Get(context.Background(), "a")
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(string(e.Value())).To(Equal("applied"))
	})
}

func TestOnlyTheNextReplyIsLostWithOnce(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.LoseReplies(faultproxy.Once(toKey("a")))
		r.Expect(r.put("b", "fine")).To(succeed())
		r.Expect(r.put("a", "first")).To(timeOut)
		r.Expect(r.put("a", "second")).To(succeed())
	})
}

func TestDelayedRepliesArriveExactlyThatMuchLater(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		const delay = 1234 * time.Millisecond
		r.link.DelayReplies(delay)

		start := time.Now()
		r.Expect(r.put("a", "1")).To(succeed())
		r.Expect(time.Since(start)).To(Equal(delay))
	})
}

func TestDelayedRepliesKeepTheirOrder(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		w, err := r.client.Watch(context.Background(), "a", jetstream.UpdatesOnly())
		r.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = w.Stop() }()

		r.link.DelayReplies(time.Second)
		start := time.Now()
		for i := range 10 {
			if i == 5 {
				r.link.DelayReplies(0) // these must not overtake the first five
			}
			_, err := r.truth.Put(context.Background(), "a", fmt.Append(nil, i))
			r.Expect(err).NotTo(HaveOccurred())
			synctest.Wait()
		}
		for i := range 10 {
			r.Expect(string((<-w.Updates()).Value())).To(Equal(fmt.Sprint(i)))
			r.Expect(time.Since(start)).To(Equal(time.Second))
		}
	})
}

func TestHealDeliversDelayedRepliesAtOnce(t *testing.T) {
	onVirtualTime(t, func(r *rig) {
		r.link.DelayReplies(time.Second)
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, r.link.Heal)
		r.Expect(r.put("a", "1")).To(succeed())
		r.Expect(time.Since(start)).To(Equal(100 * time.Millisecond))
	})
}
