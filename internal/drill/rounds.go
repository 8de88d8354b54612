package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// kind is a kind of failover that is rehearsed.
type kind int

const (
	kindFirst kind = iota
	kindHandover
	kindCrash
	kindEvict
	kinds int = iota
)

// String returns the kind's name in tables and messages.
func (k kind) String() string {
	return [...]string{"first election", "handover", "crash", "eviction"}[k]
}

// What a failover may take beyond what the TTL explains.
const (
	expiryLateness = 500 * time.Millisecond // servers expire keys late, busy ones by this much
	slack          = 2 * time.Second        // for requests on their way and machines that are busy
)

// bound returns how long a failover of this kind may take. With default options candidates campaign every 0.75 of the
// TTL, and a winner stands down for as long. After a release it need not. In all other cases the bound is that of a crash,
// for a machine that is busy may cost the winner its lease before it leads, and then that has to expire first.
func (k kind) bound(ttl time.Duration) time.Duration {
	interval := ttl * 3 / 4
	if k == kindHandover {
		return interval + slack
	}
	standDown := interval
	return ttl + expiryLateness + interval + standDown + slack
}

// fault is what was done to the candidates, and what came of it.
type fault struct {
	kind   kind
	round  int
	at     time.Duration // on the sampler's clock
	member int           // whom it hit; for a first election, the first candidate
	led    time.Duration // when somebody led; 0 if nobody did in time
	leader int           // who
}

// Rehearsal is one run of a drill: what it works with, and what it finds out.
type Rehearsal struct {
	ttl      time.Duration
	rounds   int
	operator *cli.Session
	bucket   *election.Bucket
	fleet    *fleet
	sampler  *sampler
	progress *progress
	delays   [kinds][]time.Duration // before the fault of each round

	faults   []fault
	cuts     []timeline.Cut
	believed []time.Duration
	Report   *Report
}

func newRehearsal(d Config, operator *cli.Session, bucket *election.Bucket, f *fleet) *Rehearsal {
	r := &Rehearsal{
		ttl: d.TTL, rounds: d.Rounds, operator: operator, bucket: bucket, fleet: f,
		sampler: newSampler(f.members),
		Report: &Report{
			TTL: d.TTL.Seconds(), Candidates: d.Candidates, Rounds: d.Rounds,
			Server: operator.ServerURL(), ServerVersion: operator.Conn.ConnectedServerVersion(),
		},
	}
	for k := range r.delays {
		r.delays[k] = spread(d.Rounds, d.TTL*3/4)
	}
	r.progress = newProgress(d.Progress, r.sampler.now, d.Rounds, d.TTL)
	return r
}

// spread returns n times below limit in random order, one from each nth part of it. Faults at such times hit candidates
// in all phases of their interval, also when there are few of them.
func spread(n int, limit time.Duration) []time.Duration {
	times := make([]time.Duration, n)
	for i, j := range rand.Perm(n) {
		times[i] = time.Duration((float64(j) + rand.Float64()) / float64(n) * float64(limit))
	}
	return times
}

// run goes through all rounds and fills in the report.
func (r *Rehearsal) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // a candidate that cannot stand makes every figure worthless
		select {
		case err := <-r.fleet.broken:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	r.progress.announce(r.Report)
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
	r.Report.fill(r)
	return err
}

// round rehearses each kind once, under a new key. Once nobody leads in time the round is over: what would follow has no
// leader to begin with.
func (r *Rehearsal) round(ctx context.Context, n int) error {
	key := fmt.Sprintf("round-%d", n+1)
	r.sampler.begin(key)
	defer r.fleet.dissolve()
	for _, rehearse := range []func(context.Context, int, string) (bool, error){r.first, r.handover, r.crash, r.evict} {
		if led, err := rehearse(ctx, n, key); err != nil || !led {
			return err
		}
	}
	return nil
}

// first has all candidates stand: one now, as the first of a fleet that starts, the others within one interval.
func (r *Rehearsal) first(ctx context.Context, n int, key string) (bool, error) {
	members := r.fleet.members
	starter := n % len(members)
	var others sync.WaitGroup
	defer others.Wait()
	return r.measure(ctx, fault{kind: kindFirst, round: n, member: starter}, func() error {
		members[starter].join(key)
		for i := 1; i < len(members); i++ {
			m := members[(starter+i)%len(members)]
			others.Go(func() {
				if timeutil.Pause(ctx, rand.N(r.ttl*3/4)) == nil {
					m.join(key)
				}
			})
		}
		return nil
	})
}

// handover stops the leader, and has it join again when another leads.
func (r *Rehearsal) handover(ctx context.Context, n int, key string) (bool, error) {
	leader, err := r.incumbent(ctx, kindHandover, n)
	if err != nil || leader < 0 {
		return false, err
	}
	m := r.fleet.members[leader]
	var leaving sync.WaitGroup
	led, err := r.measure(ctx, fault{kind: kindHandover, round: n, member: leader}, func() error {
		leaving.Go(m.leave)
		return nil
	})
	leaving.Wait()
	if err != nil || !led {
		return led, err
	}
	m.join(key)
	return true, nil
}

// crash cuts the leader's link. It lives on, unable to reach anybody, until another leads.
func (r *Rehearsal) crash(ctx context.Context, n int, _ string) (bool, error) {
	leader, err := r.incumbent(ctx, kindCrash, n)
	if err != nil || leader < 0 {
		return false, err
	}
	m := r.fleet.members[leader]
	var from time.Duration
	var doubted <-chan sighting
	led, err := r.measure(ctx, fault{kind: kindCrash, round: n, member: leader}, func() error {
		from = r.sampler.now()
		m.link.Cut()
		doubted = r.sampler.expect(notLeading(leader))
		return nil
	})
	select {
	case seen := <-doubted:
		r.believed = append(r.believed, seen.at-from)
	default: // it still believes, which is an overlap if another leads
		r.believed = append(r.believed, r.sampler.now()-from)
	}
	r.cuts = append(r.cuts, timeline.Cut{Member: leader, From: from, To: r.sampler.now()})
	m.link.Heal()
	if err != nil || !led {
		return led, err
	}
	return true, r.fleet.reconnected(ctx)
}

// evict deletes the key under the leader, as an operator might.
func (r *Rehearsal) evict(ctx context.Context, n int, key string) (bool, error) {
	leader, err := r.incumbent(ctx, kindEvict, n)
	if err != nil || leader < 0 {
		return false, err
	}
	led, err := r.measure(ctx, fault{kind: kindEvict, round: n, member: leader}, func() error {
		if err := r.bucket.Delete(ctx, key); err != nil {
			return fmt.Errorf("the key cannot be deleted: %w", err)
		}
		return nil
	})
	if err != nil || !led {
		return led, err
	}
	return true, timeutil.Pause(ctx, r.ttl/4) // the round ends with a leader to be seen
}

// incumbent returns who leads when it is time for the next fault. Should a busy machine have cost the leader its lease
// meanwhile, somebody else leads soon; -1 is returned if nobody does.
func (r *Rehearsal) incumbent(ctx context.Context, next kind, n int) (int, error) {
	if err := timeutil.Pause(ctx, r.delays[next][n]); err != nil {
		return -1, err
	}
	bound := kindCrash.bound(r.ttl)
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	case <-late.C:
		r.miss(n, "steady state", bound)
		return -1, nil
	case seen := <-r.sampler.expect(laterTerm(0)):
		return seen.leader, nil
	}
}

// miss writes down that nobody led in time.
func (r *Rehearsal) miss(round int, when string, bound time.Duration) {
	r.Report.Missed = append(r.Report.Missed, missed{Round: round + 1, Kind: when, BoundS: bound.Seconds()})
}

// measure commits a fault and waits until somebody leads another term than before, or should have long.
func (r *Rehearsal) measure(ctx context.Context, f fault, commit func() error) (bool, error) {
	bound := f.kind.bound(r.ttl)
	term := r.sampler.highestTerm()
	f.at = r.sampler.now()
	r.progress.begin(f, r.fleet.members[f.member].name)
	if err := commit(); err != nil {
		return false, err
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-late.C:
		r.miss(f.round, f.kind.String(), bound)
	case seen := <-r.sampler.expect(laterTerm(term)):
		f.led, f.leader = seen.at, seen.leader
	}
	r.faults = append(r.faults, f)
	r.progress.finish(f, r.fleet.members, bound)
	return f.led > 0, nil
}
