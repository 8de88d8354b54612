package fleettest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Candidate is a candidate with a record of its callbacks.
type Candidate struct {
	*election.Election
	Link   *faultproxy.Link // nil if it has none of its own
	Result chan error       // receives what Start or Run returns
	Begun  time.Time        // when it was made

	Fleet  *Fleet
	mu     sync.Mutex
	events []string
}

// NewCandidate makes a candidate: it is one of the methods of Fleet below.
type NewCandidate = func(name string, opts ...election.Option) *Candidate

// Candidate returns a candidate that does not know its connection and does not campaign yet. There is no splay unless an option sets one.
func (f *Fleet) Candidate(name string, opts ...election.Option) *Candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.CandidateOn(name, l, f.Bare(natstest.Connect(f.T, l)), opts...)
}

// Connected returns a candidate that knows its connection.
func (f *Fleet) Connected(name string, opts ...election.Option) *Candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.CandidateOn(name, l, f.Open(natstest.Connect(f.T, l)), opts...)
}

// Unnotified returns a candidate that receives no notifications: it finds everything out by its campaigns.
func (f *Fleet) Unnotified(name string, opts ...election.Option) *Candidate {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.CandidateOn(name, l, Unwatchable{KeyValue: f.Bare(natstest.Connect(f.T, l))}, opts...)
}

// FaultyCandidate returns a candidate together with its bucket, whose calls the test can replace.
func (f *Fleet) FaultyCandidate(name string, opts ...election.Option) (*Candidate, *Faulty) {
	f.Helper()
	b := &Faulty{KeyValue: f.Bucket}
	return f.CandidateOn(name, nil, b, opts...), b
}

// CandidateOn returns a candidate in the given bucket, which was opened over the link.
func (f *Fleet) CandidateOn(name string, l *faultproxy.Link, bucket jetstream.KeyValue, opts ...election.Option) *Candidate {
	f.Helper()
	c := &Candidate{Fleet: f, Link: l, Result: make(chan error, 1), Begun: time.Now()}
	e, err := election.NewElection(name, Key, bucket, append([]election.Option{
		election.WithSplay(0),
		election.OnWon(func() { c.Saw("won") }),
		election.OnLost(func() { c.Saw("lost") }),
	}, opts...)...)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	c.Election = e
	return c
}

// Election starts an election of any key without a splay, which campaigns until the test ends.
func (f *Fleet) Election(name, key string, bucket jetstream.KeyValue) *election.Election {
	f.Helper()
	e, err := election.NewElection(name, key, bucket, election.WithSplay(0))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	f.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	synctest.Wait()
	return e
}

// LeaderAndFollower returns a candidate that leads, and another that it has seen lose.
func (f *Fleet) LeaderAndFollower(candidate NewCandidate) (leader, follower *Candidate) {
	f.Helper()
	leader = candidate("a").Begin()
	After(Interval)
	follower = candidate("b").Begin()
	After(3 * Interval)
	return leader, follower
}

// Leading returns a candidate that leads, after one stand-down.
func (f *Fleet) Leading(name string, opts ...election.Option) *Candidate {
	f.Helper()
	c := f.Candidate(name, opts...).Begin()
	After(Interval)
	f.Expect(c.IsLeader()).To(gomega.BeTrue())
	return c
}

// LeaderWith returns a leader and candidates of the given names, all of which know their connection.
func (f *Fleet) LeaderWith(names ...string) (*Candidate, map[string]*Candidate) {
	f.Helper()
	a := f.Connected("a").Begin()
	After(Interval)
	others := map[string]*Candidate{}
	for _, name := range names {
		others[name] = f.Connected(name).Begin()
		After(100 * time.Millisecond)
	}
	After(Interval)
	f.Expect(a.IsLeader()).To(gomega.BeTrue())
	return a, others
}

// ForEachSource runs a test with each source of notifications: a watcher, and a bucket that is republished. With -short it runs only the
// latter.
func ForEachSource(t *testing.T, test func(f *Fleet, candidate NewCandidate)) {
	if !testing.Short() {
		t.Run("watch", func(t *testing.T) { Run(t, func(f *Fleet) { test(f, f.Candidate) }) })
	}
	t.Run("republish", func(t *testing.T) { Run(t, func(f *Fleet) { test(f, f.Connected) }, Republished) })
}

// Crowd starts candidates with a delay on their links, and counts their attempts to win the key.
func (f *Fleet) Crowd(n int, candidate NewCandidate) (all []*Candidate, attempts *atomic.Int64) {
	attempts = new(atomic.Int64)
	for i := range n {
		c := candidate(fmt.Sprintf("crowd-%d", i), election.WithSplay(5*time.Second)).Begin()
		c.Link.DelayReplies(2 * time.Millisecond)
		c.Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) && !strings.Contains(string(m.Payload), `"term"`) {
				attempts.Add(1)
			}
		})
		all = append(all, c)
	}
	return all, attempts
}

// Begin starts the candidate, which campaigns until the test ends.
func (c *Candidate) Begin() *Candidate {
	c.BeginWith(context.Background())
	return c
}

// BeginWith starts the candidate, which campaigns until the context or the test ends.
func (c *Candidate) BeginWith(ctx context.Context) {
	go func() { c.Result <- c.Start(ctx) }()
	c.Fleet.Cleanup(c.End)
	synctest.Wait()
}

// BeginRun runs the candidate with work for the leader until the test ends.
func (c *Candidate) BeginRun(work func(ctx context.Context, t election.Term) error) *Candidate {
	go func() { c.Result <- c.Run(context.Background(), work) }()
	c.Fleet.Cleanup(c.End)
	synctest.Wait()
	return c
}

// End stops the candidate, and waits until it has stopped.
func (c *Candidate) End() { _ = c.Shutdown(context.Background()) }

// StandsDown waits until the candidate has won the key and leads, and returns the time between.
func (c *Candidate) StandsDown() time.Duration {
	for c.State() == election.CandidateState {
		After(10 * time.Millisecond)
	}
	won := time.Now()
	for !c.IsLeader() {
		After(10 * time.Millisecond)
	}
	return time.Since(won)
}

// Saw records an event with the time since the candidate was made.
func (c *Candidate) Saw(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %v", what, time.Since(c.Begun)))
}

// Seen returns the recorded events.
func (c *Candidate) Seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// BackoffFunc is a backoff.
type BackoffFunc func(n int) time.Duration

// Duration implements election.Backoff.
func (f BackoffFunc) Duration(n int) time.Duration { return f(n) }
