package election_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

// observer returns one on a connection of its own.
func (f *fleet) observer(opts ...election.Option) *election.Observer {
	f.Helper()
	nc := f.server.Connect(f.T)
	o, err := election.NewObserver(f.server.Bucket(f.T, nc, ttl, f.options...), opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return o
}

// observed is what an observer told, renewals left out.
type observed struct {
	mu     sync.Mutex
	events []string
}

func (f *fleet) observe(o *election.Observer, keys ...string) *observed {
	f.Helper()
	events, err := o.Observe(f.T.Context(), keys...)
	f.Expect(err).NotTo(HaveOccurred())
	seen := &observed{}
	go func() {
		for e := range events {
			if e.Kind != election.Renewed {
				seen.mu.Lock()
				seen.events = append(seen.events, fmt.Sprintf("%s %v %s", e.Key, e.Kind, e.Leader.Name))
				seen.mu.Unlock()
			}
		}
	}()
	after(instant)
	return seen
}

// take returns what was told since the last time.
func (o *observed) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}

func TestObserverTellsTheCurrentStateFirstAndThenEachChange(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(instant)
		early := f.observe(f.observer(), key)
		f.Expect(early.take()).To(Equal([]string{"scheduler elected a"}))
		after(interval)
		f.Expect(early.take()).To(Equal([]string{"scheduler leading a"}))
		seen := f.observe(f.observer())
		f.Expect(seen.take()).To(Equal([]string{"scheduler leading a"}))

		b := candidate("b").start()
		after(3 * interval)
		a.Stop()
		after(time.Second)
		f.Expect(seen.take()).To(Equal([]string{"scheduler released a", "scheduler elected b", "scheduler leading b"}))
		b.Stop()
		after(time.Second)
		f.Expect(seen.take()).To(Equal([]string{"scheduler released b"}))
		after(2 * ttl)
		f.Expect(seen.take()).To(BeEmpty())
		f.Expect(early.take()).To(HaveLen(4))
	})
}

// observedKeys are the ways to say what to observe.
var observedKeys = map[string][]string{"all keys": nil, "one key": {key}, "patterns": {key, "jobs.>"}}

func TestObserverTellsExpiryFromEviction(t *testing.T) {
	for name, options := range map[string]func(*jetstream.KeyValueConfig){"markers": natstest.WithMarkers, "no markers": withoutMarkers} {
		for what, keys := range observedKeys {
			t.Run(name+", "+what, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					a := f.leading("a")
					given := slices.Clone(keys)
					seen := f.observe(f.observer(), given...)
					seen.take()
					a.link.Cut()
					after(ttl + 3*time.Second)
					f.Expect(seen.take()).To(Equal([]string{"scheduler expired a"}))

					f.candidate("b").start()
					after(ttl)
					seen.take()
					f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
					after(instant)
					f.Expect(seen.take()).To(Equal([]string{"scheduler evicted b"}))

					f.write("c")
					after(instant)
					f.Expect(seen.take()).To(Equal([]string{"scheduler elected c"}))
					f.write("d")
					after(instant)
					f.Expect(seen.take()).To(Equal([]string{"scheduler evicted c", "scheduler elected d"}))
					f.Expect(given).To(Equal(keys), "they are the caller's")
				}, options)
			})
		}
	}
}

func TestObserverLosesNoChangeOverARestartOfTheServer(t *testing.T) {
	for name, connected := range map[string]bool{"with its JetStream context": true, "without": false} {
		for what, keys := range observedKeys {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				s := natstest.StartTCP(t)
				nc := s.Connect(t)
				bucket := s.Bucket(t, nc, 2*time.Second)
				_, err := bucket.Put(t.Context(), key, []byte("a"))
				g.Expect(err).NotTo(HaveOccurred())
				js, err := jetstream.New(nc)
				g.Expect(err).NotTo(HaveOccurred())
				var opts []election.Option
				if connected {
					opts = append(opts, election.WithJetStream(js))
				}
				o, err := election.NewObserver(bucket, opts...)
				g.Expect(err).NotTo(HaveOccurred())
				events, err := o.Observe(t.Context(), slices.Clone(keys)...)
				g.Expect(err).NotTo(HaveOccurred())
				next := func() string {
					for {
						select {
						case e := <-events:
							if e.Kind != election.Renewed {
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

func TestSlowReaderOfAnObserverIsNotInTheWayOfOthers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		events, err := f.observer().Observe(f.T.Context())
		f.Expect(err).NotTo(HaveOccurred())
		other := f.observe(f.observer())
		for i := range 3000 {
			f.write(`{"name":"a","instance":"a","attempt":"a.1","since":"2026-01-01T00:00:00Z"}`)
			if i%1000 == 0 {
				after(instant) // what stands but for an instant need not be told
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
				after(instant)
			}
		}
		after(time.Second)
		f.Expect(other.take()).To(HaveLen(7), "a reader that takes nothing is not in the way of others")
		var last election.Event
		for count := 0; ; count++ {
			select {
			case last = <-events:
				continue
			case <-time.After(time.Second):
			}
			f.Expect(count).To(And(BeNumerically(">", 1000), BeNumerically("<", 1010)))
			break
		}
		f.Expect(last.Kind).To(BeElementOf(election.Elected, election.Renewed))
		f.Expect(last.Leader.Revision).To(BeEquivalentTo(3003), "the latest state")
	})
}

func TestObserverOfBareNames(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		seen := f.observe(f.observer())
		a := f.candidate("a", election.WithPlainValue()).start()
		after(interval)
		a.Stop()
		after(time.Second)
		f.Expect(seen.take()).To(Equal([]string{"scheduler elected a", "scheduler leading a", "scheduler released a"}))
	}, withoutMarkers)
}

func TestObserverLeavesNothingBehind(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		ctx, cancel := context.WithCancel(f.T.Context())
		events, err := f.observer().Observe(ctx, key, "jobs.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		f.Expect(f.consumers()).To(Equal(1))
		cancel()
		after(time.Second)
		f.Expect(events).To(BeClosed())
		f.Expect(f.consumers()).To(BeZero())
	})
}

func TestLeadersOfABucket(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		o := f.observer()
		f.Expect(o.Leaders(context.Background())).To(BeEmpty())
		_, err := o.Leader(context.Background(), "b")
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		for key, value := range map[string]string{
			"b": "bare", "a": `{"name":"n","instance":"i","attempt":"i.1","term":7}`,
			"c": `{"name":"n","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z"}`,
		} {
			_, err := f.bucket.Put(context.Background(), key, []byte(value))
			f.Expect(err).NotTo(HaveOccurred())
		}
		leaders, err := o.Leaders(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(leaders).To(HaveLen(2))
		f.Expect(leaders[0].Key + leaders[0].Name + leaders[1].Key + leaders[1].Name).To(Equal("anbbare"))
		f.Expect(leaders[0].Term).To(BeEquivalentTo(7))
		f.Expect(leaders[0].Expires).To(Equal(leaders[0].Renewed.Add(ttl)))
		l, err := o.Leader(context.Background(), "b")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l).To(Equal(leaders[1]))
		f.Expect(f.consumers()).To(BeZero())
	})
}

func TestObserverNamesWhatCannotBeObserved(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for _, pattern := range []string{"", ".", "a b", "a..b", "a.>.b", ">b", "a*b c"} {
			_, err := f.observer().Observe(f.T.Context(), pattern)
			f.Expect(err).To(MatchError(election.ErrInvalidOption), pattern)
			f.Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("%q", pattern))))
		}
		_, err := f.observer().Leader(f.T.Context(), "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		_, err = election.NewObserver(nil)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))

		o := f.observer()
		f.server.Stop()
		ctx, cancel := context.WithTimeout(f.T.Context(), time.Second)
		defer cancel()
		_, err = o.Observe(ctx)
		f.Expect(err).To(MatchError(ContainSubstring(natstest.BucketName)))
		f.server.Resume(f.T)
	})
}

func TestEventsAreReadByProgramsToo(t *testing.T) {
	g := NewWithT(t)
	e := election.Event{Kind: election.Expired, Key: "k", At: time.Unix(0, 0).UTC()}
	b, err := json.Marshal(e)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(b)).To(ContainSubstring(`"kind":"expired"`))
	var back election.Event
	g.Expect(json.Unmarshal(b, &back)).To(Succeed())
	g.Expect(back).To(Equal(e))
	g.Expect(new(election.EventKind).UnmarshalText([]byte("won"))).To(MatchError(ContainSubstring(`"won"`)))
	g.Expect(election.EventKind(9).String()).To(Equal("EventKind(9)"))
}

func TestLeaderChangesAreToldToEveryCandidateInOrder(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		told := map[string]*[]string{}
		tell := func(name string) election.Option {
			seen := &[]string{}
			told[name] = seen
			return election.OnLeaderChange(func(l election.Leader) { *seen = append(*seen, l.Name) })
		}
		a := f.hearing("a", tell("a")).start()
		after(interval)
		b := f.hearing("b", tell("b")).start()
		c := f.hearing("c", tell("c"), election.WithPriority(-1)).start()
		after(3 * interval)
		f.Expect(*told["c"]).To(Equal([]string{"a"}), "renewals are no change")
		a.Stop()
		after(time.Second)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.link.Cut()
		after(3 * ttl)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(*told["a"]).To(Equal([]string{"a"}))
		f.Expect((*told["c"])[0]).To(Equal("a"))
		f.Expect((*told["c"])[len(*told["c"])-1]).To(Equal("c"))
		f.Expect(slices.DeleteFunc(slices.Clone(*told["c"]), func(name string) bool { return name == "" })).To(Equal([]string{"a", "b", "c"}))
		f.Expect(*told["c"]).To(ContainElement(""), "for the time after the crash nobody led")
	}, republished)
}

// watching is a bucket that remembers the contexts of its watchers, and can have them refused.
type watching struct {
	jetstream.KeyValue
	refused  atomic.Bool
	mu       sync.Mutex
	contexts []context.Context
}

func (b *watching) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.mu.Lock()
	b.contexts = append(b.contexts, ctx)
	b.mu.Unlock()
	if b.refused.Load() {
		return nil, jetstream.ErrNoStreamResponse
	}
	return b.KeyValue.WatchAll(ctx, opts...)
}

func TestObserverKeepsNothingOfTheWatchersThatItHad(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := &watching{KeyValue: f.bucket}
		o, err := election.NewObserver(b)
		f.Expect(err).NotTo(HaveOccurred())
		f.observe(o)
		after(10 * time.Minute) // nobody leads, so that watchers are made again and again
		f.Expect(f.consumers()).To(Equal(1))
		b.refused.Store(true)
		after(time.Minute)
		b.refused.Store(false)
		after(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		f.Expect(len(b.contexts)).To(BeNumerically(">", 100))
		last := len(b.contexts) - 1
		f.Expect(b.contexts[last].Err()).NotTo(HaveOccurred())
		for _, ctx := range b.contexts[:last] {
			f.Expect(ctx.Err()).To(HaveOccurred())
		}
	})
}

// ending is a bucket with watchers that are made just before their context ends.
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
	onVirtualTime(t, func(f *fleet) {
		for i := range 1000 { // more than a watcher has room for
			_, err := f.bucket.Put(context.Background(), fmt.Sprint("k", i), []byte("a"))
			f.Expect(err).NotTo(HaveOccurred())
		}
		ctx, cancel := context.WithCancel(f.T.Context())
		o, err := election.NewObserver(&ending{KeyValue: f.bucket, end: cancel})
		f.Expect(err).NotTo(HaveOccurred())
		events, err := o.Observe(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		after(5 * time.Second)
		f.Expect(events).To(BeClosed()) // and the end of the test finds whoever waits still
	})
}

func TestReaderThatFallsBehindGetsTheLatestStateOfEachKeyAtLast(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		events, err := f.observer().Observe(f.Context())
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		padding := strings.Repeat("x", 200)
		for i := range 5000 {
			for k := range 5 {
				_, err := f.bucket.Put(context.Background(), fmt.Sprint("k", k), fmt.Appendf(nil, "%d %s", i, padding))
				f.Expect(err).NotTo(HaveOccurred())
			}
		}
		f.Expect(f.bucket.Delete(context.Background(), "k0")).To(Succeed())
		after(instant)
		last := map[string]string{}
		count := 0
		for range 3000 { // more than may wait
			select {
			case e := <-events:
				count++
				if last[e.Key] = e.Kind.String(); e.Kind != election.Released { // by whoever was last seen to hold it
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
