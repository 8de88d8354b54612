package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// crashTTL is the TTL of the trials that are compared with etcd's.
const crashTTL = 5 * time.Second

// BenchmarkCrash measures from the moment at which a leader's link is cut to the call of another's OnWon, in TTLs. Each
// trial is an election of its own, with a leader on a link of its own and two followers; all go on at once, and each is
// cut at a random moment of its renewal cycle. With etcd, whose sessions last as long as a lease here, it is the
// renewing of the session that ends, and the return of another's Campaign.
func BenchmarkCrash(b *testing.B) {
	for _, m := range []struct {
		name     string
		interval time.Duration
	}{
		{"default", crashTTL * 3 / 4},
		{"interval=TTL÷3", crashTTL / 3},
	} {
		b.Run(m.name, func(b *testing.B) {
			for b.Loop() {
				crashes(b, *trials, crashTTL, m.interval).report(b, "TTLs")
			}
		})
	}
	b.Run("etcd", func(b *testing.B) {
		for b.Loop() {
			etcdCrashes(b, *trials).report(b, "TTLs")
		}
	})
}

// crashes returns how long each took, in TTLs.
func crashes(tb testing.TB, n int, ttl, interval time.Duration) sample {
	s := natstest.StartTCP(tb)
	c := newCrashes(newFleet(tb, s, ttl, 1), s, n, interval)
	for i := range c.links {
		time.AfterFunc(rand.N(interval), func() { c.cut(i) })
	}
	return c.ratios()
}

// crashesWithServer is the same where every leader is cut off in the moment in which the server crashes that leads the bucket's stream, one of three.
func crashesWithServer(tb testing.TB, n int, ttl, interval time.Duration) sample {
	cluster := natstest.StartCluster(tb, 3)
	f := newFleet(tb, cluster, ttl, 3)
	name := cluster.StreamLeader(tb, bucketName)
	servers := cluster.Servers()
	other := servers[slices.IndexFunc(servers, func(s *natstest.Server) bool { return s.Name() != name })]
	c := newCrashes(f, other, n, interval)
	for i := range c.links {
		c.cut(i)
	}
	cluster.Crash(name)
	return c.ratios()
}

// crash is elections whose leaders are cut off: each has one on a link of its own, and two followers.
type crash struct {
	*fleet
	links   []*faultproxy.Link
	leaders []*candidate

	mu   sync.Mutex
	cuts map[string]time.Time
}

// newCrashes returns when all leaders renew, at different times, and all followers know of them.
func newCrashes(f *fleet, s *natstest.Server, n int, interval time.Duration) *crash {
	c := &crash{fleet: f, links: make([]*faultproxy.Link, n), leaders: make([]*candidate, n), cuts: map[string]time.Time{}}
	opts := []election.Option{election.WithSplay(0), election.WithCampaignInterval(interval)}
	for i := range n {
		c.links[i] = s.Link(f)
		nc, err := nats.Connect("", nats.InProcessServer(c.links[i]), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(nc.Close)
		c.leaders[i] = f.join(nc, fmt.Sprintf("key-%d", i), opts...)
		time.Sleep(interval / time.Duration(n)) // so that not all renew at once
	}
	for range n {
		f.win()
	}
	over := f.connections(2)
	for _, l := range c.leaders {
		f.join(over[0], l.key, opts...)
		f.join(over[1], l.key, opts...)
	}
	time.Sleep(2*interval + calm) // the opening campaigns
	return c
}

// cut cuts off a leader.
func (c *crash) cut(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links[i].Cut()
	c.cuts[c.leaders[i].key] = time.Now()
}

// ratios waits until others lead in all elections, and returns how long it took from the cuts, in TTLs.
func (c *crash) ratios() (ratios sample) {
	for range c.leaders {
		w := c.win()
		c.mu.Lock()
		cut, ok := c.cuts[w.by.key]
		c.mu.Unlock()
		for _, l := range c.leaders {
			if l.key == w.by.key && l.IsLeader() {
				c.Fatal("two lead")
			}
		}
		if !ok {
			c.Fatal("somebody won without a crash")
		}
		ratios.add(w.at.Sub(cut), c.ttl)
	}
	return ratios
}

func etcdCrashes(tb testing.TB, n int) (ratios sample) {
	e := startEtcd(tb, 1, false)
	client := e.client()
	type win struct {
		key int
		at  time.Time
	}
	wins := make(chan win, 3*n)
	sessions := make([]*concurrency.Session, n)
	campaign := func(key int) *concurrency.Session {
		s := e.session(client, int(crashTTL/time.Second))
		go func() {
			if concurrency.NewElection(s, fmt.Sprintf("/crash-%d", key)).Campaign(context.Background(), "a") == nil {
				wins <- win{key, time.Now()}
			}
		}()
		return s
	}
	for i := range n {
		sessions[i] = campaign(i)
		<-wins
		time.Sleep(crashTTL * 3 / 4 / time.Duration(n))
	}
	for i := range n {
		campaign(i)
		campaign(i)
	}
	time.Sleep(crashTTL)

	var mu sync.Mutex
	cuts := map[int]time.Time{}
	for i, s := range sessions {
		time.AfterFunc(rand.N(crashTTL), func() {
			mu.Lock()
			defer mu.Unlock()
			cuts[i] = time.Now()
			s.Orphan()
		})
	}
	for range n {
		w := <-wins
		mu.Lock()
		ratios.add(w.at.Sub(cuts[w.key]), crashTTL)
		mu.Unlock()
	}
	return ratios
}
