package sim

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// bare returns a candidate of a simulated bucket without faults, which writes by hand.
func bare() *candidate {
	s := &script{seed: 1, ttl: 10 * time.Second, markers: true, named: true, latency: time.Millisecond, plans: []plan{{name: "a", connected: true}}}
	w := &world{script: s, Engine: virtual.Engine{Now: epoch}, journal: &judge.Journal{}, tally: judge.Tally{}}
	w.judge = judge.New(s.ttl, s.ttl, s.named, w.journal, w.tally)
	w.server = newServer(w)
	w.slots = []*slot{{plan: &s.plans[0]}}
	return w.newCandidate(w.slots[0], "")
}

// write has the simulated server carry out a write.
func (c *candidate) write(op core.Op) core.Result {
	op.Reconnects = core.AnyReconnects
	r := c.requestOf(&op)
	r.c = c
	return c.w.server.write(r)
}

func TestSimulatedServerAppliesAndRefusesWritesAsARealServerDoes(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, ctx := NewWithT(t), context.Background()
		s, c := natstest.Start(t), bare()
		bucket := s.Bucket(t, s.Connect(t), 10*time.Second)
		var last uint64
		same := func(what string, revision uint64, err error, simulated core.Result) {
			t.Helper()
			sequence, named := kv.LastSequence(err)
			g.Expect(simulated.Outcome == core.Applied).To(Equal(err == nil), "%s: %v", what, err)
			g.Expect(simulated.Outcome == core.Refused).To(Equal(kv.Classify(err) == kv.Refused), "%s: %v", what, err)
			if err == nil {
				g.Expect(simulated.Revision).To(Equal(revision), what)
				last = revision
			} else {
				g.Expect(simulated.Named).To(Equal(named), what)
				g.Expect(simulated.Last).To(Equal(sequence), what)
			}
		}
		update := func(what string, over uint64) {
			t.Helper()
			revision, err := bucket.Update(ctx, electionKey, []byte("a"), over)
			same(what, revision, err, c.write(core.Op{Kind: core.Write, Value: []byte("a"), Replaces: over}))
		}
		create := func(what string) {
			t.Helper()
			revision, err := bucket.Create(ctx, electionKey, []byte("a"))
			same(what, revision, err, c.write(core.Op{Kind: core.Write, Value: []byte("a"), Create: true}))
		}
		update("an update where there is nothing", 7)
		create("a creation")
		update("an update over another revision", last+6)
		update("an update that demands that there be nothing", 0)
		create("a creation where there is a record")
		update("an update", last)

		g.Expect(bucket.Delete(ctx, electionKey, jetstream.LastRevision(last))).To(Succeed())
		removed := c.write(core.Op{Kind: core.Delete, Replaces: last})
		g.Expect(removed.Outcome).To(Equal(core.Applied))
		update("an update over what was deleted", last)
		update("an update over a marker that demands that there be nothing", 0)
		create("a creation over a marker")
		update("an update that demands that there be nothing, over a record", 0)
	})
}
