package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
)

// script chooses the faults, by a seed.
type script struct {
	random    *rand.Rand
	kinds     []faultKind
	remaining []faultKind // kinds that this cycle has not chosen yet
}

// next chooses a kind whose lanes are free; ok is false if there is none. In each cycle it chooses every kind once, in random order. If
// a fault occupies the lanes of all remaining kinds, next adds a cycle of the kinds whose lanes are free.
func (s *script) next(free lane) (k faultKind, ok bool) {
	fits := func(k faultKind) bool { return k.lanes&^free == 0 }
	if !slices.ContainsFunc(s.remaining, fits) {
		all := len(s.remaining) == 0
		for _, i := range s.random.Perm(len(s.kinds)) {
			if k := s.kinds[i]; all || fits(k) {
				s.remaining = append(s.remaining, k)
			}
		}
	}
	i := slices.IndexFunc(s.remaining, fits)
	if i < 0 {
		return faultKind{}, false
	}
	k = s.remaining[i]
	s.remaining = slices.Delete(s.remaining, i, i+1)
	return k, true
}

// plan draws the random properties of a fault. It draws all of them for every kind, in one order, so that the script does not depend
// on what the candidates do. Three of four faults on candidates aim at the leader, and a fault that lasts is longer than the TTL.
func (s *script) plan(k faultKind, d *Drill) *fault {
	r := s.random
	aimed, other, variant := r.IntN(4) > 0, r.IntN(len(d.fleet)), r.IntN(1<<16)
	duration := d.TTL + history.Lateness + time.Duration((0.1+r.Float64())*float64(d.TTL))
	first, second := r.IntN(processes.ClusterSize), 1+r.IntN(processes.ClusterSize-1)

	f := &fault{faultKind: k, variant: variant, duration: duration}
	leader, _ := d.leaders.Latest()
	switch {
	case k.lanes&laneCandidates != 0:
		f.candidate = d.fleet[other]
		if leader >= 0 && (aimed || k.leaderOnly) {
			f.candidate = d.fleet[leader]
		}
		f.hitsLeader = f.candidate.Index == leader
	case k.name == "lose-quorum":
		f.servers = []int{first, (first + second) % processes.ClusterSize}
	case k.name == "restart-servers":
		f.servers = []int{0, 1, 2}
	default:
		f.servers = d.streamLeader()
	}
	if k.name == Rewind {
		f.servers = d.streamLeader()
	}
	if k.name == "kill-server" && (!aimed || f.servers == nil) {
		f.servers = []int{first}
	}
	return f
}

// injectFaults injects faults until ctx ends: at the interval of the configuration or, without one, each fault after a candidate has
// led for a random time since the last fault.
func (d *Drill) injectFaults(ctx context.Context) error {
	if d.Interval > 0 {
		return d.injectAtInterval(ctx)
	}
	var last *fault
	for {
		leadTime := time.Duration((0.2 + d.script.random.Float64()) * float64(d.TTL))
		if err := d.awaitLeader(ctx, last, leadTime); err != nil || ctx.Err() != nil {
			return err
		}
		k, _ := d.script.next(allLanes)
		last = d.script.plan(k, d)
		if err := d.inject(last); err != nil {
			return err
		}
	}
}

// injectAtInterval injects a fault at each interval, unless the lanes of every kind are occupied.
func (d *Drill) injectAtInterval(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var mu sync.Mutex
	free := allLanes
	var running sync.WaitGroup
	ticker := time.NewTicker(d.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			running.Wait()
			return injectionError(ctx)
		case <-ticker.C:
		}
		mu.Lock()
		k, ok := d.script.next(free)
		if ok {
			free &^= k.lanes
		}
		mu.Unlock()
		if !ok {
			continue
		}
		f := d.script.plan(k, d)
		running.Go(func() {
			if err := d.inject(f); err != nil {
				fail(err)
			}
			mu.Lock()
			defer mu.Unlock()
			free |= k.lanes
		})
	}
}

// injectionError returns the error that ended ctx; nil if ctx ended because time was up or the user interrupted the drill.
func injectionError(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// inject injects a planned fault, ends it, and adds it to the injected faults. It also ends the fault if the time of the drill is up
// meanwhile. It does nothing if the target is down, or is not the leader as the kind requires.
func (d *Drill) inject(f *fault) error {
	if f.leaderOnly && !f.hitsLeader || f.candidate != nil && f.candidate.Process() == nil {
		return nil
	}
	d.mu.Lock()
	f.span.From = host.Clock()
	d.injected = append(d.injected, f)
	d.mu.Unlock()
	d.logf("%-16s %s", f.name, f.target())
	err := f.inject(d.lifetime, d, f)
	d.mu.Lock()
	defer d.mu.Unlock()
	f.span.To = host.Clock()
	if err != nil {
		return fmt.Errorf("%s of %s: %w", f.name, f.target(), err)
	}
	return nil
}

// awaitLeader waits until the servers are healthy and a candidate has led for the given time since the last fault. If that fault ended the
// term of the leader, the candidate must have begun to lead after the fault. awaitLeader gives up after a generous time; the report then
// shows that no candidate led.
func (d *Drill) awaitLeader(ctx context.Context, last *fault, leadTime time.Duration) error {
	if err := d.awaitHealthy(ctx); err != nil {
		return err
	}
	limit := time.After(2*d.timing().OutageBound() + leadTime)
	for !d.leaderIsStable(last, leadTime) {
		select {
		case <-limit:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
		if err := d.unexpectedExit(); err != nil {
			return err
		}
	}
	return nil
}

// leaderIsStable reports whether a candidate has led, each key of the sessions if there are any, for the given time since the last fault.
func (d *Drill) leaderIsStable(last *fault, leadTime time.Duration) bool {
	since, all := d.leaders.Since(d.keys())
	if last != nil {
		if d.Sessions == 0 && last.hitsLeader && !last.keepsLeader && !last.skipped && since < last.span.From {
			return false
		}
		since = max(since, last.span.To)
	}
	return all && host.Clock()-since >= leadTime
}
