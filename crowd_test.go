package election_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestFewOfManyAnswerACrashWithoutMarkers(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		_, attempts := f.crowd(100, f.candidate)
		after(4*interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		after(ttl - time.Second)
		attempts.Store(0)
		after(500 * time.Millisecond)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, withoutMarkers)
}

func TestFewOfManyAnswerTheSecondRelease(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // which does not know its connection, and so sees no candidates
		all, attempts := f.crowd(100, f.connected)
		after(5 * interval)
		a.shutdown()
		after(3 * interval)
		attempts.Store(0)
		for _, c := range all {
			if c.IsLeader() {
				c.shutdown()
			}
		}
		after(100 * time.Millisecond)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 30))
	}, republished)
}

func TestReconnectionOfManyElectionsIsSpread(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		n := 200
		start := func(name string, nc *nats.Conn) {
			bucket := f.Open(nc)
			for i := range n {
				e, err := election.NewElection(name, fmt.Sprintf("k%d", i), bucket)
				f.Expect(err).NotTo(HaveOccurred())
				go func() { _ = e.Start(context.Background()) }()
				f.T.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			}
		}
		start("a", f.Server.Connect(f.T))
		after(2 * interval)
		l := f.Server.Link(f.T)
		start("b", natstest.Connect(f.T, l))
		after(5 * ttl)
		var requests atomic.Int64
		l.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		l.Disconnect()
		after(100 * time.Millisecond)
		f.Expect(requests.Load()).To(BeNumerically("<", n))
	}, republished)
}

func TestReconnectionOfManyCandidatesIsSpread(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		n := 200
		f.connected("leader").start()
		after(interval)
		var all []*candidate
		for i := range n {
			all = append(all, f.connected(fmt.Sprint("c", i), election.WithSplay(5*time.Second)).start())
		}
		after(4 * interval)
		var writes atomic.Int64
		reads := make(chan time.Time, 100*n)
		for _, c := range all {
			c.link.OnRequest(func(m faultproxy.Message) {
				if toKey(m) {
					writes.Add(1)
				} else {
					reads <- time.Now()
				}
			})
			c.link.Disconnect()
		}
		after(ttl)
		f.Expect(writes.Load()).To(BeZero(), "the leader held the key throughout")
		close(reads)
		var at []time.Time
		for t := range reads {
			at = append(at, t)
		}
		f.Expect(len(at)).To(And(BeNumerically(">=", n), BeNumerically("<=", 3*n)), "each candidate reads the key, and the bucket's info")
		most := 0
		for i := range at {
			within := 0
			for _, other := range at[i:] {
				if other.Sub(at[i]) < 500*time.Millisecond {
					within++
				}
			}
			most = max(most, within)
		}
		f.Expect(most).To(BeNumerically("<=", n), "in any half second")
	}, republished)
}

func TestFewOfManyAnswerARelease(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		all, attempts := f.crowd(100, f.connected)
		after(5 * interval)
		attempts.Store(0)
		a.shutdown()
		after(100 * time.Millisecond)
		leaders := 0
		for _, c := range all {
			if c.IsLeader() {
				leaders++
			}
		}
		f.Expect(leaders).To(Equal(1))
		f.Expect(attempts.Load()).To(BeNumerically("<", 20))
	}, republished)
}

func TestManyElectionsOfAProcessRenewTogetherAndNoneLate(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, tc := range []struct {
		elections int
		together  bool
	}{{20, false}, {200, true}} {
		t.Run(fmt.Sprint(tc.elections), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				bucket := f.Open(f.Server.Connect(f.T))
				for i := range tc.elections {
					f.election("a", fmt.Sprint("key-", i), bucket)
					after(interval / time.Duration(tc.elections)) // so that their renewals are spread
				}
				after(3 * interval)
				var mu sync.Mutex
				last, instants, renewals := map[string]time.Time{}, map[time.Time]bool{}, 0
				sub, err := f.Server.Connect(f.T).Subscribe("$KV.>", func(m *nats.Msg) {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if before, ok := last[m.Subject]; ok {
						f.Expect(now.Sub(before)).To(And(BeNumerically("<=", interval), BeNumerically(">=", interval-interval/32)))
					}
					last[m.Subject], instants[now] = now, true
					renewals++
				})
				f.Expect(err).NotTo(HaveOccurred())
				after(10 * interval)
				f.Expect(sub.Unsubscribe()).To(Succeed())
				mu.Lock()
				defer mu.Unlock()
				f.Expect(renewals).To(BeNumerically("~", 10*tc.elections, tc.elections))
				if tc.together {
					f.Expect(len(instants)).To(BeNumerically("<=", 10*(64+2)))
				} else {
					f.Expect(len(instants)).To(BeNumerically(">", renewals*9/10))
				}
			})
		})
	}
}
