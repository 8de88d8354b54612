package quiet_test

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
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestFewOfManyAnswerACrashWithoutMarkers(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		_, attempts := f.Crowd(100, f.Candidate)
		After(4*Interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Link.Cut()
		After(TTL - time.Second)
		attempts.Store(0)
		After(500 * time.Millisecond)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, WithoutMarkers)
}

func TestFewOfManyAnswerTheSecondRelease(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Leading("a") // which does not know its connection, and so sees no candidates
		all, attempts := f.Crowd(100, f.Connected)
		After(5 * Interval)
		a.End()
		After(3 * Interval)
		attempts.Store(0)
		for _, c := range all {
			if c.IsLeader() {
				c.End()
			}
		}
		After(100 * time.Millisecond)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 30))
	}, Republished)
}

func TestReconnectionOfManyElectionsIsSpread(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
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
		After(2 * Interval)
		l := f.Server.Link(f.T)
		start("b", natstest.Connect(f.T, l))
		After(5 * TTL)
		var requests atomic.Int64
		l.OnRequest(func(faultproxy.Message) { requests.Add(1) })
		l.Disconnect()
		After(100 * time.Millisecond)
		f.Expect(requests.Load()).To(BeNumerically("<", n))
	}, Republished)
}

func TestReconnectionOfManyCandidatesIsSpread(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		n := 200
		f.Connected("leader").Begin()
		After(Interval)
		var all []*Candidate
		for i := range n {
			all = append(all, f.Connected(fmt.Sprint("c", i), election.WithSplay(5*time.Second)).Begin())
		}
		After(4 * Interval)
		var writes atomic.Int64
		reads := make(chan time.Time, 100*n)
		for _, c := range all {
			c.Link.OnRequest(func(m faultproxy.Message) {
				if ToKey(m) {
					writes.Add(1)
				} else {
					reads <- time.Now()
				}
			})
			c.Link.Disconnect()
		}
		After(TTL)
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
	}, Republished)
}

func TestFewOfManyAnswerARelease(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		all, attempts := f.Crowd(100, f.Connected)
		After(5 * Interval)
		attempts.Store(0)
		a.End()
		After(100 * time.Millisecond)
		leaders := 0
		for _, c := range all {
			if c.IsLeader() {
				leaders++
			}
		}
		f.Expect(leaders).To(Equal(1))
		f.Expect(attempts.Load()).To(BeNumerically("<", 20))
	}, Republished)
}

func TestManyElectionsOfAProcessRenewTogetherAndNoneLate(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, tc := range []struct {
		elections int
		together  bool
	}{{20, false}, {200, true}} {
		t.Run(fmt.Sprint(tc.elections), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				bucket := f.Open(f.Server.Connect(f.T))
				for i := range tc.elections {
					f.Election("a", fmt.Sprint("key-", i), bucket)
					After(Interval / time.Duration(tc.elections)) // so that their renewals are spread
				}
				After(3 * Interval)
				var mu sync.Mutex
				last, instants, renewals := map[string]time.Time{}, map[time.Time]bool{}, 0
				sub, err := f.Server.Connect(f.T).Subscribe("$KV.>", func(m *nats.Msg) {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if before, ok := last[m.Subject]; ok {
						f.Expect(now.Sub(before)).To(And(BeNumerically("<=", Interval), BeNumerically(">=", Interval-Interval/32)))
					}
					last[m.Subject], instants[now] = now, true
					renewals++
				})
				f.Expect(err).NotTo(HaveOccurred())
				After(10 * Interval)
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
