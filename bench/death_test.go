package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/test/witnesstest"
)

func TestMain(m *testing.M) {
	witnesstest.Main()
	startWitness()
	os.Exit(m.Run())
}

const (
	deathTTL    = 30 * time.Second // no lease is over within a trial
	deathSettle = 250 * time.Millisecond
)

// BenchmarkDeath measures from the moment at which a leader with a witness is killed, or is told to die, to the call of another's OnWon, less the
// settle time: how much longer it takes than it must. Each trial is another program. It fails if the other led before the work of the dead leader had
// ended and settled.
func BenchmarkDeath(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, way := range []witnesstest.Way{witnesstest.Kill, witnesstest.Panic, witnesstest.Exit, witnesstest.Segfault, witnesstest.Memory} {
			b.Run(fmt.Sprintf("%s/nats-R%d", way, replicas), func(b *testing.B) {
				var s servers = startServerProcess(b)
				if replicas > 1 {
					s = natstest.StartCluster(b, replicas)
				}
				deaths(b, newFleet(b, s, deathTTL, replicas), way)
			})
		}
	}
}

func deaths(b *testing.B, f *fleet, way witnesstest.Way) {
	add := func(int) {}
	if way == witnesstest.Memory {
		add = witnesstest.ControlGroup(b, 128<<20)
	}
	nc := f.connect()
	c := witnesstest.Config{URL: nc.ConnectedUrl(), Buckets: []string{bucketName}, Keys: 1, Settle: deathSettle}
	var times sample
	for b.Loop() {
		p := witnesstest.Start(b, c)
		add(p.PID)
		successor := f.join(nc, witnesstest.Key(0), election.WithSplay(0))
		f.await("the successor sees the program lead", func() bool {
			l := successor.Status().Leader
			return l != nil && l.Name == "program" && l.Term != 0
		})
		time.Sleep(calm)
		died := p.Die(b, way)
		w := f.win()
		if way == witnesstest.Memory { // which takes its time until the kernel kills it
			died = p.LastHeartbeat(b)
		}
		if settled := p.LastHeartbeat(b).Add(deathSettle); w.at.Before(settled) {
			b.Fatalf("the next leader led %v before the work of the dead one had settled", settled.Sub(w.at))
		}
		times.add(w.at.Sub(died)-deathSettle, time.Millisecond)
		successor.leave()
	}
	times.report(b, "ms")
}
