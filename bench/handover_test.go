package bench

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	handoverTTL = 10 * time.Second
	// calm is the time after a handover in which all candidates that answer the vacancy have done so.
	calm = 300 * time.Millisecond
	// counted is in how many handovers the attempts are counted, after those that are timed.
	counted = 10
)

// BenchmarkHandover measures from the call of the leader's Stop to the call of another's OnWon, when its IsLeader is true
// already, and for etcd from the call of Resign to the return of another's Campaign. A new candidate replaces the one that stopped, on a
// new connection, which leads to the next server of a cluster: how long a handover takes depends on which of them leads the stream, and the
// candidate seen last takes over, so that without this two connections would take turns. The bare ones are the requests of a handover,
// made by the client of NATS without this library: no elector that reads before it writes can be quicker on the same servers. The metric
// x-etcd is the median as a multiple of that of the etcd of as many members that writes to its disk.
func BenchmarkHandover(b *testing.B) {
	three := func(b *testing.B) {
		b.Run("etcd-1", func(b *testing.B) { etcdHandovers(b, startEtcd(b, 1, false), 3) })
		b.Run("etcd-1-nosync", func(b *testing.B) { etcdHandovers(b, startEtcd(b, 1, true), 3) })
		b.Run("bare-R1", func(b *testing.B) { bareHandovers(b, natstest.StartTCP(b), 1, 3) })
		b.Run("nats-R1", func(b *testing.B) { handovers(b, natstest.StartTCP(b), 1, 3) })
		b.Run("etcd-3", func(b *testing.B) { etcdHandovers(b, startEtcd(b, 3, false), 3) })
		b.Run("etcd-3-nosync", func(b *testing.B) { etcdHandovers(b, startEtcd(b, 3, true), 3) })
		b.Run("bare-R3", func(b *testing.B) { bareHandovers(b, startCluster(b, 3), 3, 3) })
		b.Run("nats-R3", func(b *testing.B) { handovers(b, startCluster(b, 3), 3, 3) })
	}
	b.Run("3-candidates", three)
	b.Run("3-candidates-under-load", func(b *testing.B) {
		startProcess(b, "TestLoadProcess") // another program of the host, which computes on every core
		three(b)
	})
	b.Run("200-candidates/etcd-1", func(b *testing.B) { etcdHandovers(b, startEtcd(b, 1, false), 200) })
	b.Run("200-candidates/bare-R1", func(b *testing.B) { bareHandovers(b, startServerProcess(b), 1, 200) })
	b.Run("200-candidates/nats-R1", func(b *testing.B) { handovers(b, startServerProcess(b), 1, 200) })
}

// besideEtcd reports the median as a multiple of etcd's.
func besideEtcd(b *testing.B, times sample) {
	b.Helper()
	if etcdMedian > 0 {
		b.ReportMetric(quantile(times, 0.5)/etcdMedian, "x-etcd")
	}
}

// etcdMedian is that of the last benchmark of an etcd that writes to its disk.
var etcdMedian float64

func handovers(b *testing.B, s servers, replicas, candidates int) {
	const key = "handover"
	f := newFleet(b, s, handoverTTL, replicas)
	t := f.tally(key)
	leader := f.assemble(key, candidates, f.connections(candidates), t)

	var times sample
	attempts := 0
	handover := func() {
		took, next := f.handover(leader)
		b.StopTimer()
		times.add(took, time.Millisecond)
		time.Sleep(calm)
		attempts += t.take()
		leader.conn.Close()
		f.replace(leader)
		time.Sleep(calm / 3)
		t.take()
		leader = next
		b.StartTimer()
	}
	t.stop() // which is one more that is told of everything
	for b.Loop() {
		handover()
	}
	times.report(b, "ms")
	t.start()
	for range counted {
		handover()
	}
	besideEtcd(b, times)
	b.ReportMetric(float64(attempts)/counted, "mean-attempts")
}

// connections opens so many.
func (f *fleet) connections(n int) []*nats.Conn {
	f.Helper()
	all := make([]*nats.Conn, n)
	for i := range all {
		all[i] = f.connect()
	}
	return all
}

// assemble adds a leader and then its followers, spread over the connections, and returns the leader when all have made
// their opening campaigns, so that they rely on notifications and the leader knows its successors.
func (f *fleet) assemble(key string, candidates int, over []*nats.Conn, t *tally) *candidate {
	f.Helper()
	leader := f.lead(over[0], key)
	t.take()
	for i := 1; i < candidates; i++ {
		f.join(over[i%len(over)], key)
	}
	const openings = 2
	f.await("opening campaigns", func() bool { return t.candidates(openings) == candidates-1 })
	time.Sleep(calm)
	t.take()
	return leader
}

// handover has the leader stop, and returns how long it took until somebody else led, and who.
func (f *fleet) handover(leader *candidate) (time.Duration, *candidate) {
	f.Helper()
	began := time.Now()
	leader.Stop()
	w := f.win()
	if w.by == leader || leader.IsLeader() || !w.by.IsLeader() {
		f.Fatal("this was no handover")
	}
	return w.at.Sub(began), w.by
}

func etcdHandovers(b *testing.B, e *etcd, candidates int) {
	wins := make(chan etcdWin, candidates)
	campaign := func(c *clientv3.Client, s *concurrency.Session) {
		election := concurrency.NewElection(s, "/handover")
		if err := election.Campaign(context.Background(), "a"); err == nil {
			wins <- etcdWin{election, c, s, time.Now()}
		}
	}
	for range candidates {
		c := e.client()
		go campaign(c, e.session(c, 10))
	}
	leader := <-wins
	time.Sleep(calm + time.Duration(candidates)*10*time.Millisecond)

	var times sample
	for b.Loop() {
		began := time.Now()
		go func() { _ = leader.Resign(context.Background()) }()
		next := <-wins
		b.StopTimer()
		times.add(next.at.Sub(began), time.Millisecond)
		time.Sleep(calm)
		go campaign(leader.client, leader.session)
		time.Sleep(calm / 3)
		leader = next
		b.StartTimer()
	}
	times.report(b, "ms")
	if !e.fast {
		etcdMedian = quantile(times, 0.5)
	}
}

type etcdWin struct {
	*concurrency.Election
	client  *clientv3.Client
	session *concurrency.Session
	at      time.Time
}

func TestHandoverCountsWhatHappened(t *testing.T) {
	t.Parallel()
	f := newFleet(t, natstest.StartTCP(t), steadyTTL, 1, steady...)
	tally := f.tally("k")
	leader := f.assemble("k", 3, f.connections(3), tally)
	took, next := f.handover(leader)
	f.await("the attempt is counted", func() bool { return tally.candidates(1) > 0 })
	time.Sleep(calm)
	attempts := tally.take()
	if took <= 0 || took > steadyTTL/2 || attempts < 1 || attempts > 3 {
		t.Errorf("took %v, %d attempts", took, attempts)
	}
	if next.Status().Notifications != "republish" || f.losses.Load() != 1 || f.consumers() != 0 {
		t.Error("the fleet is not what it should be")
	}
}
