package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/natstest"
)

// crashTTL is the TTL of the trials that are compared with etcd's.
const crashTTL = 5 * time.Second

// BenchmarkCrash measures from the moment at which a leader's link is cut to the call of another's OnWon, in TTLs. Each
// trial is an election of its own, with a leader on a link of its own and two followers; all go on at once, and each is
// cut at a random moment of its renewal cycle. With etcd, whose sessions last as long as a lease here, it is the
// renewing of the session that ends, and the return of another's Campaign.
func BenchmarkCrash(b *testing.B) {
	for _, m := range []struct {
		name string
		opts []election.Option
	}{
		{"stand-down=default", nil},
		{"stand-down=TTL÷10", []election.Option{election.WithStandDown(crashTTL / 10)}},
		{"stand-down=0", []election.Option{election.WithStandDown(0)}},
	} {
		b.Run(m.name, func(b *testing.B) {
			for b.Loop() {
				crashes(b, *trials, crashTTL, crashTTL*3/4, m.opts...).report(b, "TTLs")
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
func crashes(tb testing.TB, n int, ttl, interval time.Duration, opts ...election.Option) (ratios sample) {
	s := natstest.StartTCP(tb)
	f := newFleet(tb, s, ttl, 1)
	opts = append(opts, election.WithSplay(0), election.WithCampaignInterval(interval))
	links, leaders := make([]*faultproxy.Link, n), make([]*candidate, n)
	for i := range n {
		links[i] = s.Link(tb)
		nc, err := nats.Connect("", nats.InProcessServer(links[i]), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(nc.Close)
		leaders[i] = f.join(nc, fmt.Sprintf("key-%d", i), opts...)
		time.Sleep(interval / time.Duration(n)) // so that not all renew at once
	}
	for range n {
		f.win()
	}
	over := f.connections(2)
	for i := range n {
		f.join(over[0], leaders[i].key, opts...)
		f.join(over[1], leaders[i].key, opts...)
	}
	time.Sleep(2*interval + calm) // the opening campaigns

	var mu sync.Mutex
	cuts := map[string]time.Time{}
	for i, l := range links {
		time.AfterFunc(rand.N(interval), func() {
			mu.Lock()
			defer mu.Unlock()
			l.Cut()
			cuts[leaders[i].key] = time.Now()
		})
	}
	for range n {
		w := f.win()
		mu.Lock()
		cut, ok := cuts[w.by.key]
		mu.Unlock()
		for i := range n {
			if leaders[i].key == w.by.key && leaders[i].IsLeader() {
				tb.Fatal("two lead")
			}
		}
		if !ok {
			tb.Fatal("somebody won without a crash")
		}
		ratios.add(w.at.Sub(cut), ttl)
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
