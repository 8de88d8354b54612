package group

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election"
)

const (
	// maxAsking is how many leaders a member asks to hand over at a time: as many as a process of package election serves.
	maxAsking = 16
	// askAgain is how long after one that came to nothing the leader is asked again at first, later up to retry: where many
	// ask one that leaves, it may refuse some.
	askAgain = 50 * time.Millisecond
	// lingering is for how long at most a member still stands for a key that it has handed over, until it sees the other
	// lead and can say so; it looks every glance.
	lingering = time.Second
	glance    = 10 * time.Millisecond
)

// seat is one key, and this member's election for it while it stands.
type seat struct {
	key      string
	election atomic.Pointer[election.Election] // nil while it does not stand
	ready    atomic.Bool                       // whether it has campaigned: by then it hears of a release that names it
	lost     atomic.Int64                      // when it last lost leadership, in Unix nanoseconds
	outcome  atomic.Pointer[outcome]           // of the election, when that has ended

	// The rest belongs to the loop.
	stopping bool
	ask      time.Time          // when to ask the leader next
	tries    int                // how many times it was asked
	unask    context.CancelFunc // nil while nobody is asked
	asked    chan error         // receives when somebody has been; nil likewise
}

type outcome struct{ err error }

// leads says whether this member leads the key now.
func (s *seat) leads() bool {
	e := s.election.Load()
	return e != nil && e.IsLeader()
}

// seating stands for what the plan gives, asks whoever leads it to hand over, and stands no more for anything else that
// this member does not lead. It returns when there may be more to do.
func (r *run) seating() time.Time {
	next := time.Now().Add(r.ttl)
	mine := r.plan.gives(r.name)
	present := r.told && time.Now().Before(r.until(r.members[r.name]))
	for _, key := range r.keys {
		s := r.seats[key]
		r.collect(s)
		_, wanted := slices.BinarySearch(mine, key)
		standing := s.election.Load() != nil
		switch {
		case !standing && wanted && !r.done:
			r.stand(s)
		case !standing || s.stopping:
		case !wanted:
			next = earlier(next, r.unwanted(s))
		case present:
			next = earlier(next, r.claim(s))
		}
	}
	return next
}

// stand begins to stand for the key.
func (r *run) stand(s *seat) {
	opts := append(slices.Clone(r.opts.election),
		election.WithJetStream(r.js), election.WithSplay(0), election.WithPriority(0),
		election.OnWon(func() { signal(r.wake) }),
		election.OnLost(func() { s.lost.Store(time.Now().UnixNano()); signal(r.wake) }),
		election.OnCampaign(func(election.State) {
			if s.ready.CompareAndSwap(false, true) {
				signal(r.wake)
			}
		}))
	e, err := election.NewElection(r.name, r.electionKey(s.key), r.bucket, opts...)
	if err != nil { // New has tried the same
		r.done, r.failed = true, err
		return
	}
	s.ready.Store(false)
	s.lost.Store(0)
	s.outcome.Store(nil)
	s.stopping, s.ask, s.tries, s.unask = false, time.Time{}, 0, nil
	s.election.Store(e)
	go func() {
		var err error
		if r.work == nil {
			err = e.Start(r.ctx)
		} else {
			err = e.Run(r.ctx, func(ctx context.Context, t election.Term) error { return r.work(ctx, s.key, t) })
		}
		s.outcome.Store(&outcome{err})
		signal(r.wake)
	}()
}

// collect takes note of what has ended at a seat. An election that ended by itself ends the run: its work has returned, or
// the bucket is wrong.
func (r *run) collect(s *seat) {
	select {
	case err := <-s.asked:
		r.answered(s, err)
	default:
	}
	o := s.outcome.Load()
	if o == nil || s.election.Load() == nil {
		return
	}
	if s.unask != nil {
		s.unask()
		return
	}
	if s.election.Store(nil); !s.stopping {
		r.done, r.failed = true, errors.Join(r.failed, o.err)
	}
}

// unwanted has this member stand no more for a key that it does not lead. One that it leads it leads on until it is asked to
// hand over.
func (r *run) unwanted(s *seat) (next time.Time) {
	if s.leads() {
		return time.Now().Add(r.ttl)
	}
	if s.unask != nil {
		s.unask()
	}
	lost := time.Unix(0, s.lost.Load())
	if time.Now().Before(lost.Add(min(lingering, r.ttl/4))) {
		if l := s.election.Load().Status().Leader; time.Since(lost) < glance || l == nil || l.Name == r.name || l.Term == 0 {
			return time.Now().Add(glance)
		}
	}
	r.stop(s)
	return time.Now().Add(r.ttl)
}

// stop begins to end an election; collect finds that it has ended.
func (r *run) stop(s *seat) {
	s.stopping = true
	go s.election.Load().Stop()
}

// claim asks whoever leads the key to hand over, once this member is ready to take over.
func (r *run) claim(s *seat) (next time.Time) {
	far := time.Now().Add(r.ttl)
	if s.election.Load().State() != election.CandidateState {
		if s.unask != nil {
			s.unask()
		}
		return far
	}
	switch {
	case !s.ready.Load() || s.unask != nil || r.asking >= maxAsking:
		return far
	case time.Now().Before(s.ask):
		return s.ask
	}
	if again := time.Unix(0, s.lost.Load()).Add(lingering); time.Now().Before(again) { // it was given away by a plan not heard yet
		return again
	}
	ctx, cancel := context.WithCancel(r.ctx)
	s.unask = cancel
	asked := make(chan error, 1)
	s.asked = asked
	r.asking++
	go func() {
		asked <- r.observer.Transfer(ctx, r.electionKey(s.key), r.name)
		signal(r.wake)
	}()
	return far
}

// answered takes note that the leader of a key has been asked.
func (r *run) answered(s *seat, err error) {
	s.unask()
	s.unask, s.asked = nil, nil
	pause := min(askAgain<<min(s.tries, 10), retry, r.ttl/beats)
	s.ask = time.Now().Add(pause/2 + rand.N(pause))
	s.tries++
	r.asking--
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, election.ErrNoLeader) {
		r.log.Debug("Key not handed over yet", "key", s.key, "error", err)
	}
}
