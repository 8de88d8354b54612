package bench

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// BenchmarkFollower counts every message that a leader and its nine followers send to the server, each over a link of its
// own, in the steady state. That sets in late, as a follower campaigns only every 40 to 120 TTLs. Several such elections
// go on at once, for a figure that does not hang on the chance of a few campaigns.
func BenchmarkFollower(b *testing.B) {
	for b.Loop() {
		leaders, followers := followerRequests(b, 20, 9, 5*time.Second, *warmUp, *measure)
		b.ReportMetric(leaders, "requests/s/leader")
		b.ReportMetric(followers, "requests/s/follower")
		b.ReportMetric((leaders+9*followers)/10, "requests/s/candidate")
	}
}

// followerRequests returns the requests per second of one leader and of one follower, on average.
func followerRequests(tb testing.TB, elections, each int, ttl, warmUp, measure time.Duration, opts ...election.Option) (leader, follower float64) {
	s := natstest.StartTCP(tb)
	f := newFleet(tb, s, ttl, 1, opts...)
	var byLeaders, byFollowers atomic.Int64
	join := func(i int, requests *atomic.Int64) {
		l := s.Link(tb)
		nc, err := nats.Connect("", nats.InProcessServer(l), nats.ReconnectBufSize(-1))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(nc.Close)
		f.join(nc, fmt.Sprintf("key-%d", i), election.WithSplay(ttl/4))
		l.OnRequest(func(faultproxy.Message) { requests.Add(1) })
	}
	for i := range elections {
		join(i, &byLeaders)
	}
	for range elections {
		f.win()
	}
	for i := range elections {
		for range each {
			join(i, &byFollowers)
		}
	}
	time.Sleep(warmUp)
	byLeaders.Store(0)
	byFollowers.Store(0)
	time.Sleep(measure)
	if f.losses.Load() > 0 {
		tb.Error("this is no steady state: leadership was lost")
	}
	perSecond := measure.Seconds() * float64(elections)
	return float64(byLeaders.Load()) / perSecond, float64(byFollowers.Load()) / perSecond / float64(each)
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	leader, follower := followerRequests(t, 2, 2, steadyTTL, 3*time.Second, 3*time.Second, steady...)
	if leader < 0.45 || leader > 2.25 || follower > leader {
		t.Errorf("%v requests per second of a leader, %v of a follower", leader, follower)
	}
}
