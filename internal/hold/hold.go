// Package hold stands in an election for one term only: until it leads, and then until it lets go or loses. It is what a
// lock and a semaphore have in common.
package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election"
)

// Taken is the error of Try when somebody else holds the key.
type Taken struct{ Key, By string }

func (t Taken) Error() string { return fmt.Sprintf("%q is held by %q", t.Key, t.By) }

// look is from one look at who holds the key to the next while Try stands.
const look = 50 * time.Millisecond

// Hold is one candidate's stand, and then its one term.
type Hold struct {
	Context context.Context // ends when the term does; this and Term are written before Settled is closed
	Term    election.Term

	election *election.Election
	cancel   context.CancelFunc
	settled  chan struct{} // closed when it leads, or cannot
	done     chan struct{} // closed when all is wound up
	err      error         // why it stood in vain; written before settled is closed
}

// Stand has e stand until it leads or the hold is withdrawn. The end of ctx means nothing, its values are passed on.
// An Election stands once at a time, and not again after its Stop.
func Stand(ctx context.Context, e *election.Election) *Hold {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &Hold{election: e, cancel: cancel, settled: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		defer cancel()
		err := e.Run(ctx, h.keep)
		if h.Context == nil { // it never led
			h.err = cmp.Or(err, election.ErrStopped)
			close(h.settled)
		}
	}()
	return h
}

// keep is the work of the term: there is no other.
func (h *Hold) keep(ctx context.Context, term election.Term) error {
	h.Context, h.Term = ctx, term
	close(h.settled)
	<-ctx.Done()
	h.cancel() // what was lost is not won again behind the owner's back
	return nil
}

// Settled is closed when it leads, or cannot.
func (h *Hold) Settled() <-chan struct{} { return h.settled }

// Done is closed when all is wound up, and the key released if it was held.
func (h *Hold) Done() <-chan struct{} { return h.done }

// Err returns, after Settled, nil if it leads or led, and else why it stood in vain.
func (h *Hold) Err() error { return h.err }

// Withdraw has it stand no longer, and let go of what it won, and does not wait for that.
func (h *Hold) Withdraw() { h.cancel() }

// Release lets go of the key, and returns when that is free. The error wraps [election.ErrNotLeader] if it was lost before.
func (h *Hold) Release() error {
	defer h.cancel()
	return h.election.Resign(context.WithoutCancel(h.Context))
}

// Wait returns e's hold when it leads. If ctx ends before, it returns ctx's error, along with the hold that is to be
// wound up; otherwise the error is why e cannot stand.
func Wait(ctx context.Context, e *election.Election) (*Hold, error) {
	h := Stand(ctx, e)
	select {
	case <-h.settled:
		return h, h.err
	case <-ctx.Done():
		h.Withdraw()
		return h, ctx.Err()
	}
}

// Try is Wait, but gives up with Taken as soon as it sees that somebody else holds the key. The hold is nil if e did
// not stand at all.
func Try(ctx context.Context, e *election.Election) (*Hold, error) {
	if err := free(ctx, e); err != nil {
		return nil, err
	}
	h := Stand(ctx, e)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-h.settled:
			return h, h.err
		case <-ctx.Done():
			h.Withdraw()
			return h, ctx.Err()
		case <-tick.C:
			if e.State() != election.CandidateState {
				continue
			}
			if taken, ok := errors.AsType[Taken](free(ctx, e)); ok {
				h.Withdraw()
				return h, taken
			}
		}
	}
}

// free returns Taken if somebody else holds the key.
func free(ctx context.Context, e *election.Election) error {
	l, err := e.Leader(ctx)
	self := e.Status()
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil
	case err != nil:
		return err
	case l.Instance == self.Instance, l.Instance == "" && l.Name == self.Name && self.State != election.UnknownState:
		return nil
	}
	return Taken{Key: l.Key, By: l.Name}
}
