package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/sim/judge"
	"github.com/natscampaign/election/internal/sim/tracer"
)

// newBucket returns a candidate's view of a simulated bucket without faults.
func newBucket(markers bool) *view {
	s := &script{seed: 1, ttl: 10 * time.Second, markers: markers, named: true, latency: time.Millisecond, plans: []plan{{name: "a"}}}
	w := &world{script: s, journal: &judge.Journal{}, tally: judge.Tally{}}
	w.judge = judge.New(s.ttl, s.ttl, s.named, w.journal, w.tally)
	w.trace = tracer.New(time.Now(), s.ttl)
	w.server = newServer(w)
	w.checkTimer = time.AfterFunc(time.Hour, func() {})
	c := &candidate{w: w, slot: &slot{plan: &s.plans[0]}, plan: &s.plans[0], name: "a"}
	c.ledger = w.judge.Add(judge.Candidate{Name: "a"})
	c.view = &view{w: w, c: c, conn: context.Background()}
	return c.view
}

func TestSimulatedServerRefusesWritesAsARealServerDoes(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, ctx := NewWithT(t), context.Background()
		s := natstest.Start(t)
		kv, v := s.Bucket(t, s.Connect(t), 10*time.Second), newBucket(false)
		same := func(err, simulated error) {
			t.Helper()
			g.Expect(simulated).To(MatchError(err.Error()))
			last, named := namedSequence(err)
			simulatedLast, simulatedNamed := namedSequence(simulated)
			g.Expect(simulatedNamed).To(Equal(named))
			g.Expect(simulatedLast).To(Equal(last))
		}
		update := func(revision uint64) {
			t.Helper()
			_, err := kv.Update(ctx, "leader", []byte("a"), revision)
			_, simulated := v.Update(ctx, "leader", []byte("a"), revision)
			same(err, simulated)
		}
		update(7) // there is no key
		first, err := kv.Create(ctx, "leader", []byte("a"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(v.Create(ctx, "leader", []byte("a"))).To(Equal(first))
		update(first + 6)
		_, err = kv.Create(ctx, "leader", []byte("a"))
		_, simulated := v.Create(ctx, "leader", []byte("a"))
		same(err, simulated)
	})
}

func TestServerRefusesACreateOverAMarkerThatTheClientCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v := NewWithT(t), newBucket(true)
		v.c.noRead = true
		create := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := v.Create(ctx, "leader", []byte("a"))
			if err != nil {
				g.Expect(time.Since(began)).To(Equal(100*time.Millisecond), "the client reads until its time is up")
			}
			return err
		}
		g.Expect(create()).To(Succeed())
		time.Sleep(10 * time.Second)
		g.Expect(create()).NotTo(Succeed())
		time.Sleep(800 * time.Millisecond)
		g.Expect(create()).NotTo(Succeed())
		time.Sleep(200 * time.Millisecond)
		g.Expect(create()).To(Succeed())
	})
}

func TestRewoundServerHasItsEarlierState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, v := NewWithT(t), newBucket(false)
		s, ctx := v.w.server, context.Background()
		first, err := v.Create(ctx, "leader", []byte("a"))
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(2 * time.Second)
		rewind := func(back time.Duration) bool {
			v.w.mu.Lock()
			defer v.w.mu.Unlock()
			return s.rewind(time.Now(), &act{back: back})
		}
		g.Expect(rewind(time.Second)).To(BeFalse(), "nothing was written since")
		second, err := v.Update(ctx, "leader", []byte("b"), first)
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(7 * time.Second)
		created := s.created
		g.Expect(rewind(8 * time.Second)).To(BeTrue())
		g.Expect(s.created).To(Equal(created))

		e, err := v.Get(ctx, "leader")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(e.Value())).To(Equal("a"))
		g.Expect(e.Revision()).To(Equal(first))
		_, err = v.Update(ctx, "leader", []byte("c"), second)
		last, named := namedSequence(err)
		g.Expect(named).To(BeTrue())
		g.Expect(last).To(Equal(first))
		time.Sleep(time.Second)
		_, err = v.Get(ctx, "leader")
		g.Expect(err).To(MatchError(jetstream.ErrKeyNotFound), "a restored record expires at its original time")
	})
}
