package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/validate"
)

// ErrReplaced is returned by Start and Run when another member of the same name has joined the group, or a copy of this process takes part
// in it, as of a virtual machine that was cloned.
var ErrReplaced = errors.New("another member of the same name has joined")

// ErrFull is returned by Start and Run when the group has [MaxMembers] members already.
var ErrFull = errors.New("the group is full")

// Group is one member of a group. Make it with [New], and have it take part with [Group.Run] or [Group.Start]. All methods may be called
// at any time, from any goroutine, and from inside the work.
type Group struct {
	name, group string
	keys        []string // sorted
	bucket      *kv.Bucket
	opts        options
	log         *slog.Logger
	witness     settings.Witness       // of the elections, and of the presence; nil if there is none
	assignments map[string]*assignment // one for each key; never changed
	published   atomic.Pointer[published]

	mu      sync.Mutex // guards what follows; never held across I/O
	stopped bool
	cancel  context.CancelFunc // nil while nothing runs
}

// Work is what the leader of a key does. ctx ends when its leadership does, for whatever reason; then work should return soon. The key is
// as it was given to New; the term is that of the key's election.
type Work func(ctx context.Context, key string, t election.Term) error

// New returns a member called name of the group of the given keys in bucket. Names and keys have letters, digits, and - _ = / with single
// dots between them; the group's name has no part "keys", "members" or "lists" after its first, for two groups could share keys of the bucket by it.
// The member's name must differ from that of any other member, and be the same whenever this member starts again, such as its host's. A
// bucket of election.OpenBucket or election.CreateBucket brings its connection; for any other give election.WithJetStream to
// [WithElectionOptions]. The error wraps election.ErrInvalidOption and names every problem. Nothing is sent to the server.
func New(name, group string, keys []string, bucket jetstream.KeyValue, opts ...Option) (*Group, error) {
	g := &Group{name: name, group: group, keys: slices.Sorted(slices.Values(keys)), opts: collect(opts)}
	if err := g.init(bucket); err != nil {
		return nil, err
	}
	g.log = g.opts.logger.With("group", group, "name", name)
	g.assignments = make(map[string]*assignment, len(keys))
	for _, key := range g.keys {
		g.assignments[key] = &assignment{key: key}
	}
	return g, nil
}

// Start takes part, and leads what the plan assigns to this member, until ctx ends or Stop is called. Then the member leaves in order: the
// others take over the keys that it leads, and the rest is released. Start blocks until that is done, and returns nil. While the server
// cannot be reached it waits. It returns [ErrReplaced], [ErrFull], and the errors that election.Election.Start does. After its context ended Start
// may be called again.
func (g *Group) Start(ctx context.Context) error { return g.run(ctx, nil) }

// Run is [Group.Start] with work for each key while this member leads it: several at a time, each in a goroutine of its own. If work
// returns while its key is still led, or panics, this member leaves the group in order, and Run returns work's error.
func (g *Group) Run(ctx context.Context, work Work) error {
	if work == nil {
		return validate.Errorf("Run was given no work: pass a function, or call Start")
	}
	return g.run(ctx, work)
}

// Stop has this member leave the group for good, in order, and returns at once: Start or Run returns when the member has left. It may be
// called again, and before Start.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	if g.cancel != nil {
		g.cancel()
	}
}

// run is what Start and Run do; work is nil for Start.
func (g *Group) run(parent context.Context, work Work) error {
	ctx, end, err := g.enter(parent)
	if err != nil {
		return err
	}
	defer end()
	defer g.published.Store(nil)
	r := newRun(ctx, g, work)
	defer r.stopWatcher()
	if err := r.waitForBucket(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	defer r.entrust()()
	err = r.loop(ctx)
	r.failed = nil
	r.leave(err)
	return errors.Join(err, r.failed) // work may have failed meanwhile
}

// enter begins a run unless there is one, or Stop was called.
func (g *Group) enter(parent context.Context) (ctx context.Context, end func(), err error) {
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

// Leads reports whether this member leads the key, now: see election.Election.IsLeader. It takes no lock and never waits.
func (g *Group) Leads(key string) bool {
	a := g.assignments[key]
	return a != nil && a.leads()
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
	Members []string            `json:"members,omitempty"` // that are present, or were when the plan was made, the one that has been present longest first
	Plan    uint64              `json:"plan"`              // the number of the last plan received; 0 for none
	Planned map[string][]string `json:"planned,omitempty"` // the keys that the plan assigns, by member
}

// published is the part of the status that the loop publishes. It is never changed.
type published struct {
	members []string
	plan    plan
}

// Status returns what the member knows. It takes no lock and never waits.
func (g *Group) Status() Status {
	s := Status{Name: g.name, Group: g.group, Bucket: g.bucket.Bucket(), Leads: g.Keys()}
	if p := g.published.Load(); p != nil {
		s.Members, s.Plan = slices.Clone(p.members), p.plan.Number
		s.Planned = make(map[string][]string, len(p.plan.Keys))
		for name, keys := range p.plan.Keys {
			s.Planned[name] = slices.Clone(keys)
		}
	}
	return s
}

func (g *Group) planKey() string               { return g.group + ".plan" }
func (g *Group) announcementKey() string       { return g.group + ".planner" }
func (g *Group) memberKey(name string) string  { return g.group + ".members." + name }
func (g *Group) listKey(hash string) string    { return g.group + ".lists." + hash }
func (g *Group) electionKey(key string) string { return g.group + ".keys." + key }
