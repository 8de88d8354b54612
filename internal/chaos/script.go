package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
)

// script decides by a seed what is done when, and to whom.
type script struct {
	random *rand.Rand
	kinds  []breakage
	bag    []breakage // kinds that have not had their turn in this cycle
}

// next returns the next kind that fits in free lanes: in each cycle all kinds have one turn, in random order. While a
// fault that lasts keeps what is left of the cycle from its turn, those that fit go through cycles of their own. There is
// none if no kind fits.
func (s *script) next(free lane) (breakage, bool) {
	fits := func(b breakage) bool { return b.lanes&^free == 0 }
	if !slices.ContainsFunc(s.bag, fits) {
		all := len(s.bag) == 0
		for _, i := range s.random.Perm(len(s.kinds)) {
			if b := s.kinds[i]; all || fits(b) {
				s.bag = append(s.bag, b)
			}
		}
	}
	i := slices.IndexFunc(s.bag, fits)
	if i < 0 {
		return breakage{}, false
	}
	b := s.bag[i]
	s.bag = slices.Delete(s.bag, i, i+1)
	return b, true
}

// plan draws all that is random about a fault, always in the same order, so that the script does not depend on what the
// candidates do: three of four faults on candidates hit the leader, and a fault that lasts outlasts the TTL.
func (s *script) plan(b breakage, d *Drill) *injury {
	r := s.random
	aimed, other, variant := r.IntN(4) > 0, r.IntN(len(d.fleet)), r.IntN(1<<16)
	hold := d.TTL + history.Lateness + time.Duration((0.1+r.Float64())*float64(d.TTL))
	first, second := r.IntN(processes.ClusterSize), 1+r.IntN(processes.ClusterSize-1)

	i := &injury{breakage: b, variant: variant, hold: hold}
	leader, _ := d.board.Leader()
	switch {
	case b.lanes&laneCandidates != 0:
		i.candidate = d.fleet[other]
		if leader >= 0 && (aimed || b.leader) {
			i.candidate = d.fleet[leader]
		}
		i.led = i.candidate.Index == leader
	case b.name == "lose-quorum":
		i.servers = []int{first, (first + second) % processes.ClusterSize}
	case b.name == "restart-servers":
		i.servers = []int{0, 1, 2}
	default:
		i.servers = []int{d.streamLeader()}
		if b.name == "kill-server" && !aimed {
			i.servers = []int{first}
		}
	}
	if b.name == Rewind {
		i.servers = []int{d.streamLeader()}
	}
	return i
}

// play injects faults until ctx ends: one after the other, each once somebody leads again and has for a while, or at the
// rate that was asked for.
func (d *Drill) play(ctx context.Context) error {
	if d.Every > 0 {
		return d.playAtRate(ctx)
	}
	var last *injury
	for {
		settled := time.Duration((0.2 + d.script.random.Float64()) * float64(d.TTL))
		if err := d.settle(ctx, last, settled); err != nil || ctx.Err() != nil {
			return err
		}
		b, _ := d.script.next(allLanes)
		last = d.script.plan(b, d)
		if err := d.injure(last); err != nil {
			return err
		}
	}
}

// playAtRate injects a fault whenever it is time and the lanes of one are free.
func (d *Drill) playAtRate(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var mu sync.Mutex
	free := allLanes
	var running sync.WaitGroup
	defer running.Wait()
	ticker := time.NewTicker(d.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			running.Wait()
			return d.failed(ctx)
		case <-ticker.C:
		}
		mu.Lock()
		b, ok := d.script.next(free)
		if ok {
			free &^= b.lanes
		}
		mu.Unlock()
		if !ok {
			continue
		}
		i := d.script.plan(b, d)
		running.Go(func() {
			if err := d.injure(i); err != nil {
				fail(err)
			}
			mu.Lock()
			defer mu.Unlock()
			free |= b.lanes
		})
	}
}

// failed returns what ended ctx if that was neither the clock nor the user.
func (d *Drill) failed(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// injure does what was planned and writes it down. A fault that was begun is carried through, healing included.
func (d *Drill) injure(i *injury) error {
	if i.leader && !i.led || i.candidate != nil && i.candidate.Running() == nil {
		return nil
	}
	d.mu.Lock()
	i.span.From = history.Now()
	d.injuries = append(d.injuries, i)
	d.mu.Unlock()
	d.say("%-16s %s", i.name, i.target())
	err := i.inject(d.life, d, i)
	d.mu.Lock()
	defer d.mu.Unlock()
	i.span.To = history.Now()
	if err != nil {
		return fmt.Errorf("%s of %s: %w", i.name, i.target(), err)
	}
	return nil
}

// settle waits until somebody has led for a while since the last fault, another if that one hit the leader, and the
// servers are well. It waits no longer than that may take: what then is not so is for the report to tell.
func (d *Drill) settle(ctx context.Context, last *injury, led time.Duration) error {
	if err := d.healthy(ctx); err != nil {
		return err
	}
	limit := time.After(2*d.timing().OutageBound() + led)
	for !d.settled(last, led) {
		select {
		case <-limit:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(settlePoll):
		}
		if err := d.broken(); err != nil {
			return err
		}
	}
	return nil
}

// settled says whether somebody has led for so long since the last fault.
func (d *Drill) settled(last *injury, led time.Duration) bool {
	who, b := d.board.Leader()
	since := b.Since
	if last != nil {
		if last.led && !last.keeps && b.Since < last.span.From {
			return false
		}
		since = max(since, last.span.To)
	}
	return who >= 0 && history.Now()-since >= led
}
