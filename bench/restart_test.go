package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// BenchmarkRestart has a server with 20 elections of three candidates, each on a connection of its own, go down for 300 ms
// and come back. It counts the leaders that lost leadership, and measures a handover of each election before and as soon after as all
// are connected again.
func BenchmarkRestart(b *testing.B) {
	for b.Loop() {
		before, after, lost := restart(b, 20, 5*time.Second, 10*time.Second)
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(quantile(before, 0.5), "before-median-ms")
		b.ReportMetric(quantile(before, 1), "before-max-ms")
		b.ReportMetric(quantile(after, 0.5), "after-median-ms")
		b.ReportMetric(quantile(after, 1), "after-max-ms")
	}
}

func restart(tb testing.TB, elections int, ttl, settled time.Duration, opts ...election.Option) (before, after sample, lost int64) {
	s := natstest.StartTCP(tb)
	f := newFleet(tb, s, ttl, 1, opts...)
	leaders := map[string]*candidate{}
	connect := func() *nats.Conn { return s.Connect(tb, nats.ReconnectBufSize(-1)) }
	for i := range elections {
		f.join(connect(), fmt.Sprintf("key-%d", i), election.WithSplay(0))
	}
	for range elections {
		w := f.win()
		leaders[w.by.key] = w.by
	}
	for key := range leaders {
		f.join(connect(), key, election.WithSplay(ttl/2))
		f.join(connect(), key, election.WithSplay(ttl/2))
	}
	time.Sleep(settled) // until the opening campaigns are over

	handovers := func() (took sample) {
		for key, leader := range leaders {
			d, next := f.handover(leader)
			took.add(d, time.Millisecond)
			leaders[key] = next
			time.Sleep(calm / 3)
			f.replace(leader)
		}
		return took
	}
	before = handovers()
	time.Sleep(settled) // until the opening campaigns are over
	losses := f.losses.Load()
	s.Restart(tb, 300*time.Millisecond)
	for _, c := range f.all {
		f.await("reconnected", c.conn.IsConnected)
	}
	after = handovers()
	return before, after, f.losses.Load() - losses - int64(elections)
}

func TestLeadershipOutlastsARestart(t *testing.T) {
	t.Parallel()
	if _, _, lost := restart(t, 2, steadyTTL, 3*time.Second, steady...); lost != 0 {
		t.Errorf("%d lost leadership", lost)
	}
}
