package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// Rehearsal is one run of a drill, with its parts and its findings.
type Rehearsal struct {
	ttl      time.Duration
	rounds   int
	bucket   *election.Bucket
	fleet    *fleet
	sampler  *sampler
	progress *progress
	delays   [failoverKinds][]time.Duration // before the fault of each round

	failovers []failover
	cuts      []timeline.Cut
	believed  []time.Duration // how long each leader with a cut link still considered itself leader
	Report    *Report
}

func newRehearsal(c Config, operator *cli.Client, bucket *election.Bucket, f *fleet) *Rehearsal {
	r := &Rehearsal{
		ttl: c.TTL, rounds: c.Rounds, bucket: bucket, fleet: f,
		sampler: newSampler(f.candidates),
		Report: &Report{
			Result: Result{TTL: c.TTL.Seconds(), Candidates: c.Candidates, ServerVersion: operator.Conn.ConnectedServerVersion()},
			Rounds: c.Rounds, Server: operator.ServerURL(),
		},
	}
	for k := range r.delays {
		r.delays[k] = stratifiedTimes(c.Rounds, campaignInterval(c.TTL))
	}
	r.progress = newProgress(c.Progress, r.sampler.now, c.Rounds, c.TTL)
	return r
}

// stratifiedTimes returns n times below limit in random order, one from each nth part of it. Faults after such delays hit the candidates
// in all phases of their campaign interval, even in a drill with few rounds.
func stratifiedTimes(n int, limit time.Duration) []time.Duration {
	times := make([]time.Duration, n)
	for i, j := range rand.Perm(n) {
		times[i] = time.Duration((float64(j) + rand.Float64()) / float64(n) * float64(limit))
	}
	return times
}

// run runs all rounds and completes the report.
func (r *Rehearsal) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // without one of its candidates the drill would measure something else
		select {
		case err := <-r.fleet.failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	r.progress.printHeader(r.Report)
	var background sync.WaitGroup
	sampling, stop := context.WithCancel(context.Background())
	background.Go(func() { r.sampler.run(sampling) })
	background.Go(func() { r.progress.run(sampling) })
	var err error
	for n := range r.rounds {
		if err = r.round(ctx, n); err != nil {
			break
		}
	}
	stop()
	background.Wait()
	r.progress.end()
	r.Report.complete(r)
	return err
}

// round rehearses each kind of failover once, under a new key. When no candidate leads in time, the round ends: the next failover would
// have no leader to begin with.
func (r *Rehearsal) round(ctx context.Context, n int) error {
	key := fmt.Sprintf("round-%d", n+1)
	r.sampler.startElection(key)
	defer r.fleet.stopAll()
	for _, rehearse := range []func(context.Context, int, string) (bool, error){r.firstElection, r.handover, r.crash, r.evict} {
		if led, err := rehearse(ctx, n, key); err != nil || !led {
			return err
		}
	}
	return nil
}

// firstElection starts all candidates: one at once, as the first of a fleet that starts, and the others within one campaign interval.
func (r *Rehearsal) firstElection(ctx context.Context, n int, key string) (bool, error) {
	candidates := r.fleet.candidates
	first := n % len(candidates)
	var others sync.WaitGroup
	defer others.Wait()
	return r.measure(ctx, failover{kind: firstElection, round: n, candidate: first}, func() error {
		candidates[first].start(key)
		for i := 1; i < len(candidates); i++ {
			c := candidates[(first+i)%len(candidates)]
			others.Go(func() {
				if timeutil.Pause(ctx, rand.N(campaignInterval(r.ttl))) == nil {
					c.start(key)
				}
			})
		}
		return nil
	})
}

// handover stops the leader, and starts it again when another candidate leads.
func (r *Rehearsal) handover(ctx context.Context, n int, key string) (bool, error) {
	leader, err := r.awaitLeader(ctx, handover, n)
	if err != nil || leader < 0 {
		return false, err
	}
	c := r.fleet.candidates[leader]
	var stopping sync.WaitGroup
	led, err := r.measure(ctx, failover{kind: handover, round: n, candidate: leader}, func() error {
		stopping.Go(c.stop)
		return nil
	})
	stopping.Wait()
	if err != nil || !led {
		return led, err
	}
	c.start(key)
	return true, nil
}

// crash cuts the leader's link until another candidate leads. The leader still runs meanwhile, and cannot reach the server.
func (r *Rehearsal) crash(ctx context.Context, n int, _ string) (bool, error) {
	leader, err := r.awaitLeader(ctx, crash, n)
	if err != nil || leader < 0 {
		return false, err
	}
	c := r.fleet.candidates[leader]
	var from time.Duration
	var stoodDown <-chan observation
	led, err := r.measure(ctx, failover{kind: crash, round: n, candidate: leader}, func() error {
		from = r.sampler.now()
		c.link.Cut()
		stoodDown = r.sampler.waitFor(notLeading(leader))
		return nil
	})
	select {
	case seen := <-stoodDown:
		r.believed = append(r.believed, seen.at-from)
	default: // the leader still considers itself leader, which is an overlap if another candidate leads
		r.believed = append(r.believed, r.sampler.now()-from)
	}
	r.cuts = append(r.cuts, timeline.Cut{Row: leader, From: from, To: r.sampler.now()})
	c.link.Heal()
	if err != nil || !led {
		return led, err
	}
	return true, r.fleet.awaitConnections(ctx)
}

// evict deletes the leader's key, as an operator may do.
func (r *Rehearsal) evict(ctx context.Context, n int, key string) (bool, error) {
	leader, err := r.awaitLeader(ctx, eviction, n)
	if err != nil || leader < 0 {
		return false, err
	}
	led, err := r.measure(ctx, failover{kind: eviction, round: n, candidate: leader}, func() error {
		if err := r.bucket.Delete(ctx, key); err != nil {
			return fmt.Errorf("cannot delete the leader's key: %w", err)
		}
		return nil
	})
	if err != nil || !led {
		return led, err
	}
	return true, timeutil.Pause(ctx, r.ttl/4) // so that the drawing shows the last leader of the round
}

// awaitLeader waits for the delay before the next fault, and returns the index of the leader. On a busy machine the leader may have lost
// its lease meanwhile; then awaitLeader waits for the next leader. It returns -1 if no candidate leads in time.
func (r *Rehearsal) awaitLeader(ctx context.Context, next failoverKind, n int) (int, error) {
	if err := timeutil.Pause(ctx, r.delays[next][n]); err != nil {
		return -1, err
	}
	began, bound := r.sampler.now(), crash.bound(r.ttl)
	timeout := time.NewTimer(bound)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	case <-timeout.C:
		r.addLate(began, "steady-state", n, bound)
		return -1, nil
	case seen := <-r.sampler.waitFor(termAfter(0)):
		return seen.leader, nil
	}
}

// addLate records that no candidate led in time.
func (r *Rehearsal) addLate(at time.Duration, kind string, round int, bound time.Duration) {
	r.Report.Late = append(r.Report.Late, lateInRound{Late{At: terminal.ToSeconds(at), Kind: kind, Bound: bound.Seconds()}, round + 1})
}

// measure injects a fault, and measures the time until a candidate leads a later term. It says whether that happened in time.
func (r *Rehearsal) measure(ctx context.Context, f failover, inject func() error) (bool, error) {
	bound := f.kind.bound(r.ttl)
	term := r.sampler.highestTerm()
	f.faultAt = r.sampler.now()
	r.progress.begin(f, r.fleet.candidates[f.candidate].name)
	if err := inject(); err != nil {
		return false, err
	}
	timeout := time.NewTimer(bound)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-timeout.C:
		r.addLate(f.faultAt, f.kind.name(), f.round, bound)
	case seen := <-r.sampler.waitFor(termAfter(term)):
		f.ledAt, f.leader = seen.at, seen.leader
	}
	r.failovers = append(r.failovers, f)
	r.progress.finish(f, r.fleet.candidates, bound)
	return f.led(), nil
}
