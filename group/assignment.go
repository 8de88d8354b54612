package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// minRequestDelay is how long after a request to hand over that failed the leader is asked again at first, later up to retryDelay:
	// where many ask one that leaves, it may refuse some.
	minRequestDelay = 50 * time.Millisecond
	// lingerTime is for how long at most a member still campaigns for a key that it has handed over, until it reads that the successor
	// leads, and has answered the request; it checks that every lingerPoll.
	lingerTime = time.Second
	lingerPoll = 10 * time.Millisecond
)

// assignment is one key, and this member's election for it while it campaigns or leads.
type assignment struct {
	key      string
	election atomic.Pointer[election.Election] // nil while there is none
	ready    atomic.Bool                       // it has campaigned: from then on it is notified of a release that names it
	lost     atomic.Int64                      // when leadership, or the work for it, last ended, in Unix nanoseconds
	lostBy   atomic.Uint64                     // the number of the plan that was in force then, as far as was known
	working  atomic.Bool                       // its work goes on, perhaps beyond its term
	ended    atomic.Pointer[error]             // the result of the election, when that has ended

	// What follows belongs to the loop.
	cutOff   func() bool // reports whether the last request of the election failed
	stopping bool
	asking   retries            // of requests to its leader
	cancel   context.CancelFunc // cancels the request under way; nil if there is none
	answer   chan answer        // receives the answer to that request; nil likewise
	ability
}

// leads reports whether this member leads the key now.
func (a *assignment) leads() bool {
	e := a.election.Load()
	return e != nil && e.IsLeader()
}

// running reports whether there is an election that is not about to end.
func (a *assignment) running() bool { return a.election.Load() != nil && !a.stopping }

// stop ends the election; collect notices that it has ended.
func (a *assignment) stop() {
	a.stopping = true
	a.election.Load().Stop()
}

// cancelRequest cancels the request to hand over, if there is one; collect notices its answer.
func (a *assignment) cancelRequest() {
	if a.cancel != nil {
		a.cancel()
	}
}

// sinceLost returns the time since this member last lost the leadership of the key, and its work ended.
func (a *assignment) sinceLost() time.Duration { return time.Since(time.Unix(0, a.lost.Load())) }

// answer is what a request about a key has found out.
type answer struct {
	leader election.Leader // that was read; zero if nobody leads
	unread bool            // the key could not be read
	tried  bool            // nothing was read: whether the key can be written was tried
	err    error           // why this member does not lead the key yet, if it asked for it, or why it cannot write the key
}

// maxStarting is how many elections of a member may begin at a time: each makes a few requests, and a server that starts has many members.
const maxStarting = 64

// campaign campaigns for the keys that the plan assigns to this member, asks their leaders to hand over, and ends the campaigns for other
// keys that this member does not lead.
func (r *run) campaign() {
	assigned := r.plan.keysOf(r.name)
	present := r.complete && time.Now().Before(r.gone(r.members[r.name]))
	starting := 0 // elections that have not campaigned yet
	for _, key := range r.keys {
		a := r.assignments[key]
		if r.collect(a); a.running() && !a.ready.Load() && !a.election.Load().Status().Paused {
			starting++
		}
	}
	for _, key := range r.keys {
		a := r.assignments[key]
		_, mine := slices.BinarySearch(assigned, key)
		r.noteLed(a, mine)
		switch {
		case mine && a.election.Load() == nil && !r.ending && starting < maxStarting:
			r.start(a)
			starting++
		case !a.running():
		case !mine:
			r.withdraw(a)
		case present && r.isDue(r.unledAt(a)):
			r.lookUp(a)
		case present:
			r.requestHandover(a)
		}
	}
	r.relist()
}

// start begins a campaign for the key.
func (r *run) start(a *assignment) {
	opts := append(slices.Clone(r.opts.election), election.WithSplay(0), election.WithPriority(0), settings.WithoutStandbys,
		func(o *settings.Options) {
			o.LastRequestFailed = &a.cutOff
			o.Target = func(asked record.Successor) record.Successor { return r.successor(a, asked) }
		},
		election.OnWon(r.signal),
		election.OnLost(func() {
			a.lost.Store(time.Now().UnixNano())
			a.lostBy.Store(r.published.Load().plan.Number)
			r.signal()
		}),
		election.OnCampaign(func(election.State) {
			if a.ready.CompareAndSwap(false, true) {
				r.signal()
			}
		}))
	e, err := election.NewElection(r.name, r.electionKey(a.key), r.bucket.KeyValue, opts...)
	if err != nil { // New has validated the same
		r.ending, r.failed = true, err
		return
	}
	a.ready.Store(false)
	a.lost.Store(0)
	a.ended.Store(nil)
	a.stopping, a.asking = false, retries{}
	a.election.Store(e)
	go func() {
		var err error
		if r.work == nil {
			err = e.Start(r.ctx)
		} else {
			err = e.Run(r.ctx, func(ctx context.Context, t election.Term) error {
				a.working.Store(true)
				defer func() {
					a.lost.Store(time.Now().UnixNano())
					a.working.Store(false)
					r.signal()
				}()
				return r.work(ctx, a.key, t)
			})
		}
		a.ended.Store(&err)
		r.signal()
	}()
}

// successor returns which member is to take over a key whose work has ended: the member that asked for it or, if there has been another plan since,
// the one to which that plan assigns the key. The zero Successor has this member lead the key again, because nobody else is to. It takes no lock.
func (r *run) successor(a *assignment, asked record.Successor) record.Successor {
	p := r.published.Load()
	if p.plan.Number == a.lostBy.Load() {
		return asked
	}
	if name := p.plan.ownerOf(a.key); name != r.name && slices.Contains(p.members, name) {
		return record.Successor{Name: name}
	}
	return record.Successor{}
}

// collect takes in that a request to hand over or the election of an assignment has ended. An election that ended by itself ends the run: its work
// has returned, or the bucket is wrong.
func (r *run) collect(a *assignment) {
	select {
	case f := <-a.answer:
		r.answered(a, f)
	default:
	}
	err := a.ended.Load()
	switch {
	case err == nil || a.election.Load() == nil:
	case a.cancel != nil:
		a.cancel()
	default:
		a.cutOff = nil // which would keep the election in memory
		if a.election.Store(nil); !a.stopping {
			r.ending, r.failed = true, errors.Join(r.failed, *err)
		}
	}
}

// withdraw ends the campaign for a key, unless this member leads it: then it leads on until it is asked to hand over.
func (r *run) withdraw(a *assignment) {
	if a.leads() || a.working.Load() {
		return
	}
	a.cancelRequest()
	if lost := a.sinceLost(); lost < min(lingerTime, r.ttl/4) {
		if l := a.election.Load().Status().Leader; lost < lingerPoll || l == nil || l.Name == r.name || l.Term == 0 {
			r.actBy(time.Now().Add(lingerPoll))
			return
		}
	}
	a.stop()
}

// requestHandover asks the leader of the key to hand over, once this member is ready to take over.
func (r *run) requestHandover(a *assignment) {
	if a.election.Load().State() != election.CandidateState {
		a.cancelRequest()
		return
	}
	// A key that this member has just handed over was given away by a plan that it has not received yet.
	due := timeutil.Later(a.asking.due, time.Unix(0, a.lost.Load()).Add(lingerTime))
	switch {
	case !a.ready.Load() || a.working.Load():
	case !r.isDue(due):
	case a.cutOff():
		r.putOff(a)
	default:
		r.ask(a, r.transfer)
	}
}

// ask makes a request about a key, if there is none under way and it is time for one.
func (r *run) ask(a *assignment, request func(context.Context, *assignment) answer) {
	if a.cancel != nil || r.requests >= control.MaxHandovers || !r.isDue(a.asking.due) {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	answers := make(chan answer, 1)
	a.cancel, a.answer = cancel, answers
	r.requests++
	go func() {
		answers <- request(ctx, a)
		r.signal()
	}()
}

// putOff has this member ask for a key only later. The election of a member that was cut off may wait for an answer that was lost,
// and then for its next try. It would take over late, and the key would have no leader meanwhile.
func (r *run) putOff(a *assignment) {
	a.asking.due = time.Now().Add(r.ttl / presencesPerTTL)
	r.actBy(a.asking.due)
}

// transfer asks the leader of a key to transfer leadership to this member, and returns when this member leads. A member that cannot write the key does
// not ask: nobody would lead it.
func (r *run) transfer(ctx context.Context, a *assignment) (f answer) {
	switch f = findLeader(ctx, a); {
	case f.err != nil || f.leader.Name == "":
		return f
	case f.leader.Instance == "":
		f.err = fmt.Errorf("the leader %q wrote a bare name, and cannot be asked to hand over", f.leader.Name)
		return f
	}
	if f.err = r.probe(ctx, a); f.err == nil {
		client := control.Client{Bucket: r.bucket} // the instance distinguishes it
		f.err = client.Transfer(ctx, r.electionKey(a.key), f.leader.Instance, r.name, r.ttl+control.HandoverTimeout)
	}
	return f
}

// answered takes in the answer to a request about a key.
func (r *run) answered(a *assignment, f answer) {
	a.cancel()
	a.cancel, a.answer = nil, nil
	a.asking.failed(minRequestDelay, min(retryDelay, r.ttl/presencesPerTTL))
	r.requests--
	if f.tried {
		r.writeTried(a, f.err)
		return
	}
	if f.err != nil && !errors.Is(f.err, context.Canceled) {
		r.log.Debug("Key not handed over yet", "key", a.key, "error", f.err)
	}
	r.noteFound(a, f)
}
