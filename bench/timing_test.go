package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// BenchmarkTiming measures what follows from a TTL and a campaign interval, which -ttl and -interval set: a row of the table in
// docs/TUNING.md.
func BenchmarkTiming(b *testing.B) {
	interval := *every
	if interval == 0 {
		interval = *ttl * 3 / 4
	}
	b.Run("crash", func(b *testing.B) {
		for b.Loop() {
			crashes(b, *trials, *ttl, interval).in(*ttl).report(b, "s")
		}
	})
	b.Run("crash-with-server", func(b *testing.B) {
		for b.Loop() {
			crashesWithServer(b, *trials, *ttl, interval).in(*ttl).report(b, "s")
		}
	})
	b.Run("outage", func(b *testing.B) {
		for b.Loop() {
			least, most := outage(b, *trials, *ttl, interval)
			b.ReportMetric(quantile(least, 0), "min-s")
			b.ReportMetric(quantile(most, 1), "max-s")
		}
	})
	b.Run("server-crash", func(b *testing.B) {
		for b.Loop() {
			down, lost := serverCrash(b, *trials, *ttl, interval)
			b.ReportMetric(down.Seconds(), "down-s")
			b.ReportMetric(float64(lost), "lost")
		}
	})
}

// in returns a sample of ratios to d in seconds.
func (s sample) in(d time.Duration) (seconds sample) {
	for _, ratio := range s {
		seconds = append(seconds, ratio*d.Seconds())
	}
	return seconds
}

// leaders has n elections of one candidate each, on connections of their own, that renew at different times, and returns when all lead.
func leaders(f *fleet, n int, interval time.Duration) {
	for i := range n {
		f.join(f.connect(), fmt.Sprintf("key-%d", i), election.WithSplay(0), election.WithCampaignInterval(interval))
		time.Sleep(interval / time.Duration(n))
	}
	for range n {
		f.win()
	}
	time.Sleep(interval)
}

// outage stops the only server for good and returns for how many seconds each leader led on: at least from when the server had stopped until the leader was
// last asked and led, and at most from when the server began to stop until the leader had said that it led no more.
func outage(tb testing.TB, n int, ttl, interval time.Duration) (least, most sample) {
	s := natstest.StartTCP(tb)
	f := newFleet(tb, s, ttl, 1)
	leaders(f, n, interval)
	stops := time.Now()
	s.Stop()
	stopped := time.Now()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, c := range f.all {
		wait.Go(func() {
			last, asked := stopped, time.Now()
			for c.IsLeader() {
				time.Sleep(time.Millisecond)
				last, asked = asked, time.Now()
			}
			mu.Lock()
			defer mu.Unlock()
			least.add(last.Sub(stopped), time.Second)
			most.add(time.Since(stops), time.Second)
		})
	}
	wait.Wait()
	return least, most
}

// serverCrash crashes the server that leads the bucket's stream, one of three. It returns for how long the bucket took no writes, and
// how many leaders lost leadership.
func serverCrash(tb testing.TB, n int, ttl, interval time.Duration) (down time.Duration, lost int64) {
	c := natstest.StartCluster(tb, 3)
	f := newFleet(tb, c, ttl, 3)
	name := c.StreamLeader(tb, bucketName)
	var surviving []*natstest.Server
	for _, s := range c.Servers() {
		if s.Name() != name {
			surviving = append(surviving, s)
		}
	}
	bucket := f.bucket(surviving[0].Connect(tb, nats.ReconnectBufSize(-1)))
	leaders(f, n, interval)

	crashed := time.Now()
	c.Crash(name)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		_, err := bucket.PutString(ctx, "probe", "")
		cancel()
		if err == nil {
			break
		}
		if time.Since(crashed) > patience {
			tb.Fatalf("no write for %v: %v", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	down = time.Since(crashed)
	time.Sleep(ttl) // until each leader has renewed or lost its lease
	return down, f.losses.Load()
}

func TestALeaderLeadsOnForWhatIsLeftOfItsLease(t *testing.T) {
	t.Parallel()
	const ttl, interval = 4 * time.Second, 1500 * time.Millisecond
	const lease, late = ttl * 9 / 10, 500 * time.Millisecond // a busy host may renew that late
	least, most := outage(t, 4, ttl, interval)
	if quantile(most, 0) < (lease-interval-late).Seconds() || quantile(least, 1) > lease.Seconds() {
		t.Errorf("led on for at least %v s and at most %v s, not between %v and %v", least, most, lease-interval-late, lease)
	}
}
