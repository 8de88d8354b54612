package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/timeutil"
)

// lane is what a fault is done to. Two faults in one lane are never injected at the same time.
type lane int

const (
	laneCandidates lane = 1 << iota
	laneServers
	laneStranger

	allLanes = laneCandidates | laneServers | laneStranger
)

// breakage is a kind of fault that is done to processes.
type breakage struct {
	name, about string
	mark        string // in a drawing
	lanes       lane
	ends        bool // a leader's term, at once
	keeps       bool // the leader: whoever led before leads after it
	leader      bool // whether it hits whoever leads, and nobody else
	replicas    int  // that the bucket must have for it; 0 if that does not matter
	inject      func(ctx context.Context, d *Drill, i *injury) error
}

// inOrder is a kind of its own, and part of another.
var inOrder = breakage{name: "handover", about: "candidate leaves in order", mark: "leave", lanes: laneCandidates, ends: true, inject: injectHandover}

// breakages are all kinds. Their names are those of --fault and of the report.
var breakages = []breakage{
	{name: "kill", about: "process is killed", mark: "kill", lanes: laneCandidates, ends: true, inject: injectKill},
	{name: "stop", about: "process stands still", mark: "stop", lanes: laneCandidates, inject: injectStop},
	{name: "cut", about: "link is cut", mark: "cut", lanes: laneCandidates, inject: injectCut},
	{name: "one-way", about: "link works one way", mark: "one-way", lanes: laneCandidates, inject: injectOneWay},
	{name: "delay", about: "replies come late", mark: "delay", lanes: laneCandidates, inject: injectDelay},
	inOrder,
	{name: "evict", about: "key is deleted or overwritten", mark: "evict", lanes: laneCandidates | laneServers, ends: true, leader: true, inject: injectEvict},
	{name: "revoke", about: "candidate loses rights", mark: "revoke", lanes: laneCandidates, keeps: true, inject: injectRevoke},
	{name: "forge", about: "stranger forges changes", mark: "forge", lanes: laneStranger, keeps: true, inject: injectForge},
	{name: "step-down", about: "stream's leader steps down", mark: "step", replicas: processes.ClusterSize, inject: injectStepDown},
	{name: Rewind, about: "server forgets writes", mark: "rewind", lanes: laneCandidates | laneServers, ends: true, leader: true, replicas: 1, inject: injectRewind},
	{name: "kill-server", about: "a server is killed", mark: "kill", lanes: laneServers, inject: injectKillServer},
	{name: "restart-servers", about: "all restart, one by one", mark: "roll", lanes: laneServers, inject: injectRestartServers},
	{name: "lose-quorum", about: "two servers are killed", mark: "quorum", lanes: laneServers, inject: injectLoseQuorum},
}

// fits says whether the fault can be done to a bucket with so many replicas.
func (b breakage) fits(replicas int) bool { return b.replicas == 0 || b.replicas == replicas }

func FaultNames() []string {
	var names []string
	for _, b := range breakages {
		names = append(names, b.name)
	}
	return names
}

// injury is a fault that is about to be done, or was.
type injury struct {
	breakage
	candidate *processes.Candidate // whom it hits; nil if it is done to servers
	led       bool                 // whether that one led
	servers   []int                // which it hits
	variant   int                  // of what there is to choose from, any number
	hold      time.Duration        // how long it lasts, if it lasts
	note      string               // what was done exactly
	renews    bool                 // whether what the candidate sends still arrives
	undone    bool                 // whether it could not be done
	span      history.Span
}

// target names whom the fault hits.
func (i *injury) target() string {
	switch {
	case i.candidate != nil && i.led:
		return i.candidate.Name + ", which led"
	case i.candidate != nil:
		return i.candidate.Name + ", which did not lead"
	}
	if i.lanes == laneStranger {
		return "notifications"
	}
	var names []string
	for _, s := range i.servers {
		names = append(names, fmt.Sprintf("server-%d", s+1))
	}
	return strings.Join(names, " and ")
}

func injectKill(ctx context.Context, _ *Drill, i *injury) error {
	if err := i.candidate.Kill(); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, i.hold/2)
	return i.candidate.Start(ctx)
}

func injectStop(ctx context.Context, _ *Drill, i *injury) error {
	process := i.candidate.Running()
	if err := process.Stop(); err != nil {
		return err
	}
	_ = timeutil.Pause(ctx, i.hold)
	return process.Proceed()
}

// injectCut has everything vanish, or holds it until the link is healed, as TCP does.
func injectCut(ctx context.Context, _ *Drill, i *injury) error {
	if i.variant%2 == 0 {
		i.note = "what is sent is lost"
		i.candidate.Link.Cut()
	} else {
		i.note = "what is sent arrives later"
		i.candidate.Link.Stall()
	}
	_ = timeutil.Pause(ctx, i.hold)
	i.candidate.Link.Mend()
	return nil
}

func injectOneWay(ctx context.Context, _ *Drill, i *injury) error {
	if i.variant%2 == 0 {
		i.note = "requests are lost"
		i.candidate.Link.LoseRequests(nil)
	} else {
		i.note, i.renews = "replies are held", true
		i.candidate.Link.StallReplies()
	}
	_ = timeutil.Pause(ctx, i.hold)
	i.candidate.Link.Mend()
	return nil
}

func injectDelay(ctx context.Context, d *Drill, i *injury) error {
	i.renews = true
	i.candidate.Link.DelayReplies(d.TTL + d.TTL/10)
	_ = timeutil.Pause(ctx, i.hold+d.TTL/2)
	i.candidate.Link.Mend()
	return nil
}

func injectHandover(ctx context.Context, _ *Drill, i *injury) error {
	i.candidate.Leave()
	_ = timeutil.Pause(ctx, i.hold/4)
	return i.candidate.Start(ctx)
}

// injectEvict writes as an operator might who wants the leader gone. Nothing else happens for a while: an operator who
// deletes the key under a leader that is cut off just then makes two leaders possible.
func injectEvict(ctx context.Context, d *Drill, i *injury) (err error) {
	call, cancel := context.WithTimeout(ctx, d.TTL)
	defer cancel()
	if i.variant%2 == 0 {
		i.note = "deleted"
		err = d.bucket.Delete(call, processes.Key)
	} else {
		i.note = "overwritten"
		_, err = d.bucket.Put(call, processes.Key, []byte("operator"))
	}
	_ = timeutil.Pause(ctx, d.TTL)
	return err
}

// injectStepDown asks the leader of the bucket's stream to step down. If there is none just now, it cannot.
func injectStepDown(ctx context.Context, d *Drill, i *injury) error {
	if err := d.stepDown(ctx); err != nil {
		return i.notDone(d, err)
	}
	return nil
}

// notDone takes note that the fault could not be done, as the servers could not just then.
func (i *injury) notDone(d *Drill, err error) error {
	i.undone = true
	d.say("%-16s not done: %v", i.name, err)
	return nil
}

func injectKillServer(ctx context.Context, d *Drill, i *injury) error {
	d.cluster.Servers[i.servers[0]].End(true)
	_ = timeutil.Pause(ctx, i.hold)
	return d.revive(ctx, i.servers...)
}

func injectRestartServers(ctx context.Context, d *Drill, _ *injury) error {
	for n := range d.cluster.Servers {
		d.cluster.Servers[n].End(false)
		if err := d.revive(ctx, n); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

func injectLoseQuorum(ctx context.Context, d *Drill, i *injury) error {
	for _, n := range i.servers {
		d.cluster.Servers[n].End(true)
	}
	_ = timeutil.Pause(ctx, i.hold)
	return d.revive(ctx, i.servers...)
}
