package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

// BenchmarkTransfer measures from the call of the leader's Transfer to the call of the named candidate's OnWon: of an election, and of one key of three sessions.
// The target is never the candidate whose attempt came last, which would have taken over from a leader that stops.
func BenchmarkTransfer(b *testing.B) {
	b.Run("3-candidates/nats-R1", func(b *testing.B) { transfers(b, natstest.StartTCP(b), 1, (*fleet).elections) })
	b.Run("3-sessions/nats-R1", func(b *testing.B) { transfers(b, natstest.StartTCP(b), 1, (*fleet).sessions) })
	b.Run("3-candidates/nats-R3", func(b *testing.B) { transfers(b, startCluster(b, 3), 3, (*fleet).elections) })
	b.Run("3-sessions/nats-R3", func(b *testing.B) { transfers(b, startCluster(b, 3), 3, (*fleet).sessions) })
}

const transferred = "transfer" // the key

func transfers(b *testing.B, s servers, replicas int, join func(f *fleet, n, replicas int)) {
	const candidates = 3
	f := newFleet(b, s, handoverTTL, replicas)
	join(f, candidates, replicas)
	var times sample
	for n := 0; b.Loop(); n++ {
		from, to := f.all[n%candidates], f.all[(n+1)%candidates]
		began := time.Now()
		if err := from.Transfer(context.Background(), to.Status().Name); err != nil {
			b.Fatal(err)
		}
		w := f.win()
		if w.by != to || !to.IsLeader() {
			b.Fatal("somebody else leads")
		}
		times.add(w.at.Sub(began), time.Millisecond)
		b.StopTimer()
		time.Sleep(calm)
		b.StartTimer()
	}
	times.report(b, "ms")
}

// elections has candidates campaign for the key, of which the first leads.
func (f *fleet) elections(n, _ int) {
	f.Helper()
	f.assemble(transferred, n, f.connections(n), f.tally(transferred))
}

// sessions has sessions campaign for the key, each over a connection of its own, of which the first leads.
func (f *fleet) sessions(n, replicas int) {
	f.Helper()
	for i := range n {
		cfg := session.Config{Bucket: "SESSIONS", Name: fmt.Sprintf("s%d", i), TTL: f.ttl, Replicas: replicas}
		s, err := session.Open(context.Background(), f.jetStream(f.connect()), cfg)
		if err != nil {
			f.Fatal(err)
		}
		c := &candidate{key: transferred}
		if c.Election, err = s.Election(transferred, election.OnWon(func() { f.wins <- win{c, time.Now()} })); err != nil {
			f.Fatal(err)
		}
		go func() { _ = c.Start(context.Background()) }()
		f.Cleanup(func() { _ = s.Close(context.Background()) })
		if f.all = append(f.all, c); i == 0 {
			f.win()
		}
	}
	time.Sleep(calm)
}
