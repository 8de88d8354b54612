package bench

import (
	"context"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"
)

// BenchmarkTransfer measures from the call of the leader's Transfer to the call of the named candidate's OnWon. The
// target is never the candidate whose attempt came last, which would have taken over from a leader that stops.
func BenchmarkTransfer(b *testing.B) {
	b.Run("3-candidates/nats-R1", func(b *testing.B) { transfers(b, natstest.StartTCP(b), 1) })
	b.Run("3-candidates/nats-R3", func(b *testing.B) { transfers(b, startCluster(b, 3), 3) })
}

func transfers(b *testing.B, s servers, replicas int) {
	const key, candidates = "transfer", 3
	f := newFleet(b, s, handoverTTL, replicas)
	f.assemble(key, candidates, f.connections(candidates), f.tally(key))
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
