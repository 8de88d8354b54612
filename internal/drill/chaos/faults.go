package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timeutil"
)

// lane is a set of targets. A drill never injects two faults in one lane at the same time. A kind without lanes may coincide with any
// fault.
type lane int

const (
	laneCandidates lane = 1 << iota
	laneServers
	laneStranger

	allLanes = laneCandidates | laneServers | laneStranger
)

// faultKind is a kind of fault.
type faultKind struct {
	name, description string

	mark        string // in the timeline
	lanes       lane
	endsTerm    bool // it ends the term of a leader that it hits, at once
	keepsLeader bool // the leader remains leader
	leaderOnly  bool // it hits only the leader
	replicas    int  // that the bucket must have; 0 if any number will do
	sessions    when // whether it is for candidates with sessions
	inject      func(ctx context.Context, d *Drill, f *fault) error
}

// when says whether a kind of fault is for candidates with sessions.
type when int

const (
	always when = iota
	never       // the fault is for buckets of elections
	only
)

// handover is also a part of rewind.
var handover = faultKind{name: "handover", description: "candidate shuts down", mark: "leave", lanes: laneCandidates, endsTerm: true, inject: injectHandover}

// faultKinds has all kinds, with their names in --fault and in the report.
var faultKinds = []faultKind{
	{name: "kill", description: "process is killed", mark: "kill", lanes: laneCandidates, endsTerm: true, inject: injectKill},
	{name: "stop", description: "process is stopped", mark: "stop", lanes: laneCandidates, inject: injectStop},
	{name: "cut", description: "link is cut", mark: "cut", lanes: laneCandidates, inject: injectCut},
	{name: "one-way", description: "link works one way", mark: "one-way", lanes: laneCandidates, inject: injectOneWay},
	{name: "delay", description: "replies come late", mark: "delay", lanes: laneCandidates, inject: injectDelay},
	handover,
	{name: "transfer", description: "leader transfers a key", mark: "transfer", lanes: laneCandidates, endsTerm: true, leaderOnly: true, sessions: only, inject: injectTransfer},
	{name: "evict", description: "key is deleted or overwritten", mark: "evict", lanes: laneCandidates | laneServers, endsTerm: true, leaderOnly: true, inject: injectEvict},
	{name: "revoke", description: "user loses permissions", mark: "revoke", lanes: laneCandidates, keepsLeader: true, sessions: never, inject: injectRevoke},
	{name: "forge", description: "stranger forges changes", mark: "forge", lanes: laneStranger, keepsLeader: true, sessions: never, inject: injectForge},
	{name: "step-down", description: "stream's leader steps down", mark: "step", replicas: processes.ClusterSize, inject: injectStepDown},
	{name: Rewind, description: "server forgets writes", mark: "rewind", lanes: laneCandidates | laneServers, endsTerm: true, leaderOnly: true, replicas: 1, inject: injectRewind},
	{name: "kill-server", description: "a server is killed", mark: "kill", lanes: laneServers, inject: injectKillServer},
	{name: "restart-servers", description: "all restart, one by one", mark: "roll", lanes: laneServers, inject: injectRestartServers},
	{name: "lose-quorum", description: "two servers are killed", mark: "quorum", lanes: laneServers, inject: injectLoseQuorum},
}

// fits reports whether the fault can be injected in a drill of that configuration.
func (k faultKind) fits(c Config) bool {
	return (k.replicas == 0 || k.replicas == c.Replicas) && (k.sessions == always || (k.sessions == only) == (c.Sessions > 0))
}

// FaultNames returns the names of all kinds of faults.
func FaultNames() []string {
	var names []string
	for _, k := range faultKinds {
		names = append(names, k.name)
	}
	return names
}

// fault is one fault, planned or injected.
type fault struct {
	faultKind
	candidate      *processes.Candidate // nil if the fault hits no candidate
	hitsLeader     bool
	key            string        // of a session, if the fault hits only that one
	servers        []int         // nil if the fault hits none, or a leader of the stream that was not known
	variant        int           // a random number, for kinds with variants
	duration       time.Duration // of a kind that lasts
	detail         string        // the variant, in words
	requestsArrive bool          // only replies are lost or late
	skipped        bool          // the servers did not accept it
	span           history.Span
}

// hitsServers reports whether the fault hits servers, rather than a candidate or notifications.
func (f *fault) hitsServers() bool { return f.candidate == nil && f.lanes != laneStranger }

// target names what the fault hits.
func (f *fault) target() string {
	switch {
	case f.candidate != nil && f.hitsLeader:
		return f.candidate.Name + " (leader)"
	case f.candidate != nil:
		return f.candidate.Name + " (follower)"
	case f.lanes == laneStranger:
		return "notifications"
	case f.servers == nil:
		return "the stream's leader"
	}
	var names []string
	for _, s := range f.servers {
		names = append(names, fmt.Sprintf("server-%d", s+1))
	}
	return strings.Join(names, " and ")
}

func injectKill(ctx context.Context, _ *Drill, f *fault) error {
	if err := f.candidate.Kill(); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, f.duration/2)
	return f.candidate.Start(ctx)
}

func injectStop(ctx context.Context, _ *Drill, f *fault) error {
	process := f.candidate.Process()
	if err := process.Suspend(); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, f.duration)
	return process.Continue()
}

// injectCut loses all messages, or holds them until the link is restored, as TCP does.
func injectCut(ctx context.Context, _ *Drill, f *fault) error {
	if f.variant%2 == 0 {
		f.detail = "messages are lost"
		f.candidate.Link.Cut()
	} else {
		f.detail = "messages are held"
		f.candidate.Link.Stall()
	}
	_ = timeutil.Pause(ctx, f.duration)
	f.candidate.Link.Restore()
	return nil
}

func injectOneWay(ctx context.Context, _ *Drill, f *fault) error {
	if f.variant%2 == 0 {
		f.detail = "requests are lost"
		f.candidate.Link.LoseRequests(nil)
	} else {
		f.detail, f.requestsArrive = "replies are held", true
		f.candidate.Link.StallReplies()
	}
	_ = timeutil.Pause(ctx, f.duration)
	f.candidate.Link.Restore()
	return nil
}

func injectDelay(ctx context.Context, d *Drill, f *fault) error {
	f.requestsArrive = true
	f.candidate.Link.DelayReplies(d.TTL + d.TTL/10)
	_ = timeutil.Pause(ctx, f.duration+d.TTL/2)
	f.candidate.Link.Restore()
	return nil
}

func injectHandover(ctx context.Context, _ *Drill, f *fault) error {
	f.candidate.Shutdown()
	_ = timeutil.Pause(ctx, f.duration/4)
	return f.candidate.Start(ctx)
}

// injectTransfer asks the candidate to transfer one of its keys.
func injectTransfer(ctx context.Context, d *Drill, f *fault) error {
	if !f.chooseKey(d) {
		return f.skip(d, errors.New("it leads no key any more"))
	}
	led := d.leaders.Of(f.candidate.Index)[f.key]
	to := d.fleet[(f.candidate.Index+1+f.variant%(len(d.fleet)-1))%len(d.fleet)]
	f.detail = f.key + " to " + to.Name
	if err := f.candidate.Transfer(f.key, to.Name); err != nil {
		return err
	}
	for limit := host.Clock() + 2*processes.TransferTimeout; d.leaders.Of(f.candidate.Index)[f.key] == led; {
		if host.Clock() > limit || timeutil.Pause(ctx, pollInterval) != nil {
			return f.skip(d, errors.New("the leader did not transfer the key"))
		}
	}
	return nil
}

// chooseKey chooses one of the keys that the candidate leads; false if it leads none.
func (f *fault) chooseKey(d *Drill) bool {
	led := slices.Sorted(maps.Keys(d.leaders.Of(f.candidate.Index)))
	if len(led) > 0 {
		f.key = led[f.variant/2%len(led)]
	}
	return len(led) > 0
}

// injectEvict deletes or overwrites the key, as an operator might. It occupies the lanes of candidates and servers for a TTL, because
// a fault that cuts off the leader at the same time would allow two leaders: a leader cannot learn of the deletion while it is cut off.
func injectEvict(ctx context.Context, d *Drill, f *fault) (err error) {
	call, cancel := context.WithTimeout(ctx, d.TTL)
	defer cancel()
	key := processes.Key
	if d.Sessions > 0 {
		if !f.chooseKey(d) {
			return f.skip(d, errors.New("it leads no key any more"))
		}
		key = session.ClaimKey(f.key)
	}
	if f.variant%2 == 0 {
		f.detail = strings.TrimSpace(f.key + " deleted")
		err = d.bucket.Delete(call, key)
	} else {
		f.detail = strings.TrimSpace(f.key + " overwritten")
		_, err = d.bucket.Put(call, key, []byte("operator"))
	}
	_ = timeutil.Pause(ctx, d.TTL)
	return err
}

// injectStepDown asks the leader of the bucket's stream to step down. It skips the fault if the stream has no leader.
func injectStepDown(ctx context.Context, d *Drill, f *fault) error {
	if err := d.stepDown(ctx); err != nil {
		return f.skip(d, err)
	}
	return nil
}

// skip excludes a fault that the servers did not accept from the report, and returns nil.
func (f *fault) skip(d *Drill, err error) error {
	f.skipped = true
	d.logf("%-16s skipped: %v", f.name, err)
	return nil
}

func injectKillServer(ctx context.Context, d *Drill, f *fault) error {
	d.cluster.Servers[f.servers[0]].Kill()
	_ = timeutil.Pause(ctx, f.duration)
	return d.startServers(ctx, f.servers...)
}

func injectRestartServers(ctx context.Context, d *Drill, _ *fault) error {
	for n := range d.cluster.Servers {
		d.cluster.Servers[n].Shutdown()
		if err := d.startServers(ctx, n); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

func injectLoseQuorum(ctx context.Context, d *Drill, f *fault) error {
	for _, n := range f.servers {
		d.cluster.Servers[n].Kill()
	}
	_ = timeutil.Pause(ctx, f.duration)
	return d.startServers(ctx, f.servers...)
}
