package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

// observer returns an observer that does not know its connection.
func observer(f *fleet, bucket jetstream.KeyValue) *observe.Observer {
	f.Helper()
	o, err := observe.New(bucket)
	f.Expect(err).NotTo(HaveOccurred())
	return o
}

// changes are the events that an observer reported, but for renewals.
type changes struct {
	mu     sync.Mutex
	events []string
}

func observed(f *fleet, o *observe.Observer, keys ...string) *changes {
	f.Helper()
	events, err := o.Observe(f.T.Context(), keys...)
	f.Expect(err).NotTo(HaveOccurred())
	c := &changes{}
	go func() {
		for e := range events {
			if e.Kind != observe.Renewed {
				c.mu.Lock()
				c.events = append(c.events, fmt.Sprintf("%s %v %s", e.Key, e.Kind, e.Leader.Name))
				c.mu.Unlock()
			}
		}
	}()
	after(instant)
	return c
}

// next returns the changes since the last call.
func (c *changes) next() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

// bySource runs f with candidates that are notified by a watcher, and then by what the bucket republishes.
func bySource(t *testing.T, run func(f *fleet, candidate func(name string, opts ...election.Option) *candidate)) {
	t.Run("watch", func(t *testing.T) {
		fleettest.Run(t, func(f *fleet) { run(f, f.Candidate) })
	})
	t.Run("republish", func(t *testing.T) {
		fleettest.Run(t, func(f *fleet) { run(f, f.Connected) }, fleettest.Republished)
	})
}

func TestObserverReportsTheCurrentStateFirstAndThenEachChange(t *testing.T) {
	natstest.SkipIfShort(t)
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").Begin()
		after(instant)
		early := observed(f, observer(f, f.Bucket), key)
		f.Expect(early.next()).To(Equal([]string{"scheduler elected a"}))
		after(interval)
		f.Expect(early.next()).To(Equal([]string{"scheduler leading a"}))
		all := observed(f, observer(f, f.Bucket))
		f.Expect(all.next()).To(Equal([]string{"scheduler leading a"}))

		b := candidate("b").Begin()
		after(3 * interval)
		a.Stop()
		after(time.Second)
		f.Expect(all.next()).To(Equal([]string{"scheduler released a", "scheduler elected b", "scheduler leading b"}))
		b.Stop()
		after(time.Second)
		f.Expect(all.next()).To(Equal([]string{"scheduler released b"}))
		after(2 * ttl)
		f.Expect(all.next()).To(BeEmpty())
		f.Expect(early.next()).To(HaveLen(4))
	})
}

// patterns are the ways to say what to observe.
var patterns = map[string][]string{"all keys": nil, "one key": {key}, "patterns": {key, "jobs.>"}, "all keys by a pattern": {">"}}

func TestObserverDistinguishesExpiryFromEviction(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, options := range map[string]func(*jetstream.KeyValueConfig){"markers": natstest.WithMarkers, "no markers": fleettest.WithoutMarkers} {
		for what, keys := range patterns {
			t.Run(name+", "+what, func(t *testing.T) {
				fleettest.Run(t, func(f *fleet) {
					a := f.Candidate("a").Begin()
					after(interval)
					given := slices.Clone(keys)
					changes := observed(f, observer(f, f.Bucket), given...)
					changes.next()
					a.Link.Cut()
					after(ttl + 3*time.Second)
					f.Expect(changes.next()).To(Equal([]string{"scheduler expired a"}))

					f.Candidate("b").Begin()
					after(ttl)
					changes.next()
					f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
					after(instant)
					f.Expect(changes.next()).To(Equal([]string{"scheduler evicted b"}))

					f.Write("c")
					after(instant)
					f.Expect(changes.next()).To(Equal([]string{"scheduler elected c"}))
					f.Write("d")
					after(instant)
					f.Expect(changes.next()).To(Equal([]string{"scheduler evicted c", "scheduler elected d"}))
					f.Expect(given).To(Equal(keys), "they are the caller's")
				}, options)
			})
		}
	}
}

func TestObserverOfBareNames(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		changes := observed(f, observer(f, f.Bucket))
		a := f.Candidate("a", election.WithPlainValue()).Begin()
		after(interval)
		a.Stop()
		after(time.Second)
		f.Expect(changes.next()).To(Equal([]string{"scheduler elected a", "scheduler leading a", "scheduler released a"}))
	}, fleettest.WithoutMarkers)
}

func TestObserverLeavesNothingBehind(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		ctx, cancel := context.WithCancel(f.T.Context())
		events, err := observer(f, f.Bucket).Observe(ctx, key, "jobs.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		f.Expect(f.Stream().Consumers).To(Equal(1))
		cancel()
		after(time.Second)
		f.Expect(events).To(BeClosed())
		f.Expect(f.Stream().Consumers).To(BeZero())
	})
}

func TestLeadersOfABucket(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o := observer(f, f.Bucket)
		f.Expect(o.Leaders(context.Background())).To(BeEmpty())
		_, err := o.Leader(context.Background(), "b")
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		for key, value := range map[string]string{
			"b": "bare", "a": `{"name":"n","instance":"i","attempt":"i.1","term":7}`,
			"c": `{"name":"n","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z"}`,
		} {
			_, err := f.Bucket.Put(context.Background(), key, []byte(value))
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
		f.Expect(f.Stream().Consumers).To(BeZero())
	})
}

func TestObserverNamesTheKeyThatCannotBeObserved(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		for _, pattern := range []string{"", ".", "a b", "a..b", "a.>.b", ">b", ".>", "a*", "a*b c"} {
			_, err := observer(f, f.Bucket).Observe(f.T.Context(), pattern)
			f.Expect(err).To(MatchError(election.ErrInvalidOption), pattern)
			f.Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("%q", pattern))))
		}
		_, err := observer(f, f.Bucket).Leader(f.T.Context(), "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		_, err = observe.New(nil)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))

		o := observer(f, f.Bucket)
		f.Server.Stop()
		ctx, cancel := context.WithTimeout(f.T.Context(), time.Second)
		defer cancel()
		_, err = o.Observe(ctx)
		f.Expect(err).To(MatchError(ContainSubstring(natstest.BucketName)))
		f.Server.Resume(f.T)
	})
}

func TestEventsAreReadByProgramsToo(t *testing.T) {
	g := NewWithT(t)
	e := observe.Event{Kind: observe.Expired, Key: "k", At: time.Unix(0, 0).UTC()}
	b, err := json.Marshal(e)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(b)).To(ContainSubstring(`"kind":"expired"`))
	var back observe.Event
	g.Expect(json.Unmarshal(b, &back)).To(Succeed())
	g.Expect(back).To(Equal(e))
	g.Expect(new(observe.EventKind).UnmarshalText([]byte("won"))).To(MatchError(ContainSubstring(`"won"`)))
	g.Expect(observe.EventKind(9).String()).To(Equal("EventKind(9)"))
}

func TestLeaderIsShownWithTheTTLThatTheBucketHasNow(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		f.Connected("a").Begin()
		after(2 * fleettest.Interval)
		o := observer(f, f.Bucket)
		l, err := o.Leader(f.T.Context(), fleettest.Key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Expires.Sub(l.Renewed)).To(Equal(fleettest.TTL))
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 6 * fleettest.TTL })
		after(2 * fleettest.TTL)
		l, err = o.Leader(f.T.Context(), fleettest.Key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Expires.Sub(l.Renewed)).To(Equal(6 * fleettest.TTL))
	}, fleettest.Republished)
}
