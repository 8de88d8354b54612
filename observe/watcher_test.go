package observe_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

func TestObserverLosesNoChangeOverARestartOfTheServer(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, connected := range map[string]bool{"with its connection": true, "without": false} {
		for what, keys := range patterns {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				s := natstest.StartTCP(t)
				nc := s.Connect(t)
				bucket := s.Bucket(t, nc, 5*time.Second)
				_, err := bucket.Put(t.Context(), key, []byte("a"))
				g.Expect(err).NotTo(HaveOccurred())
				js, err := jetstream.New(nc)
				g.Expect(err).NotTo(HaveOccurred())
				var opts []election.Option
				if connected {
					opts = append(opts, election.WithJetStream(js))
				}
				o, err := observe.New(bucket, opts...)
				g.Expect(err).NotTo(HaveOccurred())
				events, err := o.Observe(t.Context(), slices.Clone(keys)...)
				g.Expect(err).NotTo(HaveOccurred())
				next := func() string {
					for {
						select {
						case e := <-events:
							if e.Kind != observe.Renewed {
								return e.Kind.String() + " " + e.Leader.Name
							}
						case <-time.After(30 * time.Second):
							return "nothing"
						}
					}
				}
				g.Expect(next()).To(Equal("elected a"))
				s.Restart(t, 100*time.Millisecond)
				go func() { // b leads on
					for t.Context().Err() == nil {
						_, _ = bucket.Put(t.Context(), key, []byte("b"))
						time.Sleep(200 * time.Millisecond)
					}
				}()
				g.Expect(next()).To(Or(Equal("expired a"), Equal("evicted a")), "by how long the restart took")
				g.Expect(next()).To(Equal("elected b"))
				g.Expect(next()).To(Equal("leading b"))
			})
		}
	}
}

func TestSlowReaderOfAnObserverDelaysNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		events, err := observer(f, f.Bucket).Observe(f.T.Context())
		f.Expect(err).NotTo(HaveOccurred())
		other := observed(f, observer(f, f.Bucket))
		for i := range 3000 {
			f.Write(`{"name":"a","instance":"a","attempt":"a.1","since":"2026-01-01T00:00:00Z"}`)
			after(instant) // the server need not deliver what it stored only until the next write
			if i%1000 == 0 {
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				after(instant)
			}
		}
		after(time.Second)
		f.Expect(other.next()).To(HaveLen(7), "a reader that reads nothing delays no other")
		var last observe.Event
		for count := 0; ; count++ {
			select {
			case last = <-events:
				continue
			case <-time.After(time.Second):
			}
			f.Expect(count).To(And(BeNumerically(">", 1000), BeNumerically("<", 1010)))
			break
		}
		f.Expect(last.Kind).To(BeElementOf(observe.Elected, observe.Renewed))
		f.Expect(last.Leader.Revision).To(BeEquivalentTo(3003), "the latest state")
	})
}

func TestObserverEndsTheContextsOfAllItsWatchersButTheLast(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		b := &fleettest.Watched{KeyValue: f.Bucket}
		o, err := observe.New(b)
		f.Expect(err).NotTo(HaveOccurred())
		observed(f, o)
		after(10 * time.Minute) // nobody leads, so that watchers are started again and again
		f.Expect(f.Stream().Consumers).To(Equal(1))
		b.Refusing.Store(true)
		after(time.Minute)
		b.Refusing.Store(false)
		after(time.Minute)
		b.ExpectOneContext(f.WithT)
	})
}

// ending is a bucket whose watchers are started just before their context ends.
type ending struct {
	jetstream.KeyValue
	end context.CancelFunc
}

func (b *ending) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w, err := b.KeyValue.WatchAll(ctx, opts...)
	synctest.Wait()
	b.end()
	return w, err
}

func TestObserverThatEndsAsItBeginsLeavesNothingBehind(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		for i := range 1000 { // more than a watcher has room for
			_, err := f.Bucket.Put(context.Background(), fmt.Sprint("k", i), []byte("a"))
			f.Expect(err).NotTo(HaveOccurred())
		}
		ctx, cancel := context.WithCancel(f.T.Context())
		o, err := observe.New(&ending{KeyValue: f.Bucket, end: cancel})
		f.Expect(err).NotTo(HaveOccurred())
		events, err := o.Observe(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		after(5 * time.Second)
		f.Expect(events).To(BeClosed()) // and the end of the test finds every goroutine that still waits
	})
}

func TestReaderThatFallsBehindGetsTheLatestStateOfEachKeyAtLast(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		events, err := observer(f, f.Bucket).Observe(f.Context())
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		padding := strings.Repeat("x", 200)
		for i := range 5000 {
			for k := range 5 {
				_, err := f.Bucket.Put(context.Background(), fmt.Sprint("k", k), fmt.Appendf(nil, "%d %s", i, padding))
				f.Expect(err).NotTo(HaveOccurred())
			}
		}
		f.Expect(f.Bucket.Delete(context.Background(), "k0")).To(Succeed())
		after(instant)
		last := map[string]string{}
		count := 0
		for range 3000 { // more than may wait
			select {
			case e := <-events:
				count++
				if last[e.Key] = e.Kind.String(); e.Kind != observe.Released { // by the last holder, which may not have been reported
					last[e.Key] += " " + strings.Split(e.Leader.Name, " ")[0]
				}
			default:
			}
			synctest.Wait()
		}
		f.Expect(count).To(And(BeNumerically(">", 1000), BeNumerically("<", 1010)))
		f.Expect(last).To(Equal(map[string]string{
			"k0": "released", "k1": "elected 4999", "k2": "elected 4999", "k3": "elected 4999", "k4": "elected 4999",
		}))
	})
}
