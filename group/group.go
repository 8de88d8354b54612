package group

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election"
)

// ErrReplaced is returned by Start and Run when another member of the same name has joined the group.
var ErrReplaced = errors.New("another member of the same name has joined")

// Group is one member of a group. Make it with [New], and let it take part with [Group.Run] or [Group.Start]. All methods
// may be called at any time, from any goroutine, and from inside the work.
type Group struct {
	name, group string
	keys        []string // sorted
	bucket      jetstream.KeyValue
	js          jetstream.JetStream
	opts        options
	log         *slog.Logger
	observer    *election.Observer
	seats       map[string]*seat // one for each key; never changed
	seen        atomic.Pointer[seen]

	mu      sync.Mutex // guards what follows; never held across I/O
	stopped bool
	cancel  context.CancelFunc // nil while nothing runs
}

// Work is what the leader of a key does. ctx ends when its leadership does, for whatever reason; then work should return
// soon. The key is as it was given to New; the term's is that of its election.
type Work func(ctx context.Context, key string, t election.Term) error

// New returns a member called name of the group of the given keys, which js and bucket hold. Names and keys are of letters,
// digits, and - _ = / with single dots between them. The name must be unlike that of any other member, and the same
// whenever this one starts again, such as its host's. The error wraps election.ErrInvalidOption and names every problem.
// Nothing is sent to the server.
func New(name, group string, keys []string, js jetstream.JetStream, bucket jetstream.KeyValue, opts ...Option) (*Group, error) {
	g := &Group{name: name, group: group, keys: slices.Sorted(slices.Values(keys)), bucket: bucket, js: js, opts: collect(opts)}
	if err := g.validate(); err != nil {
		return nil, err
	}
	var err error
	if g.observer, err = election.NewObserver(bucket, election.WithJetStream(js)); err != nil {
		return nil, err
	}
	g.log = g.opts.logger.With("group", group, "name", name)
	g.seats = make(map[string]*seat, len(keys))
	for _, key := range g.keys {
		g.seats[key] = &seat{key: key}
	}
	return g, nil
}

// Start takes part, and leads what the plan gives this member, until ctx ends or Stop is called. Then it leaves in order:
// what it leads is handed over to the others, and released. It blocks until all is wound up, and returns nil. While
// the server cannot be reached it waits. It returns [ErrReplaced], and the errors that election.Election.Start does. After
// its context ended it may be called again.
func (g *Group) Start(ctx context.Context) error {
	return g.stay(ctx, nil)
}

// Run is [Group.Start] with work to be done for each key while it is led: several at a time, each in a goroutine of its own.
// If work returns while its key is still led, or panics, this member leaves the group in order, and Run returns work's error.
func (g *Group) Run(ctx context.Context, work Work) error {
	if work == nil {
		return invalid("Run was given no work: pass a function, or call Start")
	}
	return g.stay(ctx, work)
}

// Stop has this member leave the group for good, in order. It does not wait, so that work may call it: Start or Run
// returns when all is wound up. It may be called again, and before Start.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	if g.cancel != nil {
		g.cancel()
	}
}

// stay is what Start and Run do; work is nil for Start.
func (g *Group) stay(parent context.Context, work Work) error {
	ctx, leave, err := g.enter(parent)
	if err != nil {
		return err
	}
	defer leave()
	r := newRun(ctx, g, work)
	defer g.seen.Store(nil)
	if err := r.survey(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	err = r.loop(ctx)
	r.leave(err)
	return err
}

// enter begins a run unless there is one, or Stop was called.
func (g *Group) enter(parent context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return nil, nil, election.ErrStopped
	case g.cancel != nil:
		return nil, nil, election.ErrAlreadyRunning
	}
	ctx, cancel := context.WithCancel(parent)
	g.cancel = cancel
	return ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		cancel()
		g.cancel = nil
	}, nil
}

// Leads says whether this member leads the key, now: see election.Election.IsLeader. It takes no lock and never waits.
func (g *Group) Leads(key string) bool {
	s := g.seats[key]
	return s != nil && s.leads()
}

// Keys returns the keys that this member leads, now, sorted.
func (g *Group) Keys() []string {
	led := []string{}
	for _, key := range g.keys {
		if g.Leads(key) {
			led = append(led, key)
		}
	}
	return led
}

// Status is what a member knows of itself and its group at one instant. It encodes as JSON.
type Status struct {
	Name    string              `json:"name"`
	Group   string              `json:"group"`
	Bucket  string              `json:"bucket"`
	Leads   []string            `json:"leads"`             // the keys that this member leads
	Members []string            `json:"members,omitempty"` // that are there, the one that has been there longest first
	Plan    uint64              `json:"plan"`              // the number of the last plan heard; 0 for none
	Planned map[string][]string `json:"planned,omitempty"` // what that gives to each member
}

// seen is the part of the status that the loop makes known. It is never changed.
type seen struct {
	members []string
	plan    plan
}

// Status returns what the member knows. It takes no lock and never waits.
func (g *Group) Status() Status {
	s := Status{Name: g.name, Group: g.group, Bucket: g.bucket.Bucket(), Leads: g.Keys()}
	if v := g.seen.Load(); v != nil {
		s.Members, s.Plan = slices.Clone(v.members), v.plan.Number
		s.Planned = make(map[string][]string, len(v.plan.Keys))
		for name, keys := range v.plan.Keys {
			s.Planned[name] = slices.Clone(keys)
		}
	}
	return s
}

// presence returns what this member says of itself, in a run that began at the given time.
func (g *Group) presence(since time.Time) presence {
	host, _ := os.Hostname() // a record without a host is still a record
	return presence{Name: g.name, Instance: nuid.Next(), Since: since.UTC().Round(0), Host: host, PID: os.Getpid(), Keys: g.keys}
}

func (g *Group) planKey() string               { return g.group + ".plan" }
func (g *Group) memberKey(name string) string  { return g.group + ".members." + name }
func (g *Group) electionKey(key string) string { return g.group + ".keys." + key }
