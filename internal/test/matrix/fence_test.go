package matrix

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/fleettest"
)

// testFence has two leaders at once, by a purge of the bucket and without a stand-down, and has the older one write too.
func testFence(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: time.Minute})
	_, err := g.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, AllowAtomicPublish: true})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = g.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "STATE"})
	g.Expect(err).NotTo(HaveOccurred())
	leader := func(name string) (*candidate, election.Term) {
		l, nc := g.connect()
		js := g.jetStream(nc)
		bare, err := js.KeyValue(t.Context(), bucketName)
		g.Expect(err).NotTo(HaveOccurred())
		c := g.begin(name, l, js, fleettest.Unwatchable{KeyValue: bare}, election.WithStandDown(0))
		g.awaitLeader(c)
		term, _ := c.Term()
		return c, term
	}
	a, term := leader("a")
	older, err := fence.OpenStream(t.Context(), a.js, "RESULTS", "results.epoch", term)
	stored := g.storedForAnOldEpoch()
	if !v.atLeast(2, 11, 7) {
		g.Expect(err).To(MatchError(ContainSubstring("2.11.7 or newer")))
		_, err = fence.OpenBucket(t.Context(), a.js, "STATE", term)
		g.Expect(err).To(MatchError(ContainSubstring("2.11.7 or newer")))
		g.Expect(stored).NotTo(BeZero(), "the refusal has a reason")
		v.saw("package fence", "refuses to open a stream")
		v.saw("its batches", "none")
		return
	}
	g.Expect(stored).To(BeZero())
	g.Expect(err).NotTo(HaveOccurred())
	olderState, err := fence.OpenBucket(t.Context(), a.js, "STATE", term)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = older.PublishBatch(t.Context(), nats.NewMsg("results.x"), nats.NewMsg("results.y"))
	g.Expect(err).NotTo(HaveOccurred())
	revision, err := olderState.Create(t.Context(), "x", []byte("1"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(older.Atomic()).To(Equal(v.atLeast(2, 12, 0)))

	s, err := g.js.Stream(t.Context(), "KV_"+bucketName)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Purge(t.Context())).To(Succeed())
	b, next := leader("b")
	newer, err := fence.OpenStream(t.Context(), b.js, "RESULTS", "results.epoch", next)
	g.Expect(err).NotTo(HaveOccurred())
	newerState, err := fence.OpenBucket(t.Context(), b.js, "STATE", next)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(term.Valid()).To(BeTrue(), "it does not know")
	_, err = older.Publish(t.Context(), "results.x", nil)
	g.Expect(err).To(MatchError(fence.ErrFenced))
	_, err = olderState.Update(t.Context(), "x", []byte("2"), revision)
	g.Expect(err).To(MatchError(fence.ErrFenced))
	_, err = newer.Publish(t.Context(), "results.x", nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newerState.Update(t.Context(), "x", []byte("2"), revision)
	g.Expect(err).NotTo(HaveOccurred())
	v.saw("package fence", "works")
	batches := "one by one"
	if newer.Atomic() {
		batches = "atomic"
	}
	v.saw("its batches", "%s", batches)
}

// storedForAnOldEpoch publishes messages with the demand of an epoch that is over, and returns how many of a hundred are stored. The order of
// their headers is random.
func (g *ground) storedForAnOldEpoch() (stored int) {
	g.Helper()
	_, err := g.js.CreateStream(g.Context(), jetstream.StreamConfig{Name: "RAW", Subjects: []string{"raw.>"}})
	g.Expect(err).NotTo(HaveOccurred())
	for range 2 {
		_, err = g.js.Publish(g.Context(), "raw.epoch", nil)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for range 100 {
		m := nats.NewMsg("raw.x")
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "1")
		m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, "raw.epoch")
		if _, err := g.js.PublishMsg(g.Context(), m); err == nil {
			stored++
		}
	}
	g.Logf("%s: %d of 100 writes for an old epoch are stored", g.exact, stored)
	return stored
}
