// Package candidacy holds one term of an election: a candidate campaigns until it leads, and does not campaign again after that term. A
// mutex and a semaphore are made of candidacies.
package candidacy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election"
)

// HeldError is the error of Try when the key cannot be had now.
type HeldError struct{ Key, Why string }

func (e HeldError) Error() string { return fmt.Sprintf("%q %s", e.Key, e.Why) }

const (
	// readInterval is the time from one read of the key to the next while Try campaigns.
	readInterval = 50 * time.Millisecond
	// ElectTime is for how long a leader-elect is not taken for a holder: it may be a candidate that gives up, and whose last attempt was
	// applied all the same.
	ElectTime = time.Second
)

// Candidacy is the campaign of one candidate, and then its one term.
type Candidacy struct {
	Decided chan struct{}      // closed when the candidate leads, or cannot; Err, Context and Term are written before
	Err     error              // why the candidate cannot lead; nil if it leads or led
	Context context.Context    // ends when the term does
	Term    election.Term      // of the candidate
	Cancel  context.CancelFunc // ends the campaign or the term, and does not wait until the key is released

	election *election.Election
	done     chan struct{} // closed when the election has returned
}

// Options returns the options of a candidacy: those given, after defaults that suit candidacies, and the order in which
// candidates take over, which is an option of package settings.
func Options(order election.Option, opts []election.Option) []election.Option {
	return append([]election.Option{election.WithSplay(0), order}, opts...)
}

// Start has e campaign until it leads or the candidacy is cancelled. The candidacy passes on the values of ctx, and ignores its end. An
// Election has one candidacy at a time, and none after its Stop.
func Start(ctx context.Context, e *election.Election) *Candidacy {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Candidacy{Decided: make(chan struct{}), Cancel: cancel, election: e, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer cancel()
		err := e.Run(ctx, c.lead)
		if c.Context == nil { // it never led
			c.Err = cmp.Or(err, election.ErrStopped)
			close(c.Decided)
		}
	}()
	return c
}

// lead is the work of the term: it waits for the end.
func (c *Candidacy) lead(ctx context.Context, term election.Term) error {
	c.Context, c.Term = ctx, term
	close(c.Decided)
	<-ctx.Done()
	c.Cancel() // a key that was lost is not won again without the owner's knowledge
	return nil
}

// HeldBack returns whether an operator's pause holds the candidate back, and a HeldError that says what does; nil if nothing does.
func (c *Candidacy) HeldBack() (paused bool, err error) {
	switch now := c.election.Status(); {
	case now.State != election.CandidateState:
	case now.Paused:
		return true, HeldError{now.Key, "is paused by an operator"}
	case now.Unhealthy != "":
		return false, HeldError{now.Key, "is not campaigned for, because this host is not healthy: " + now.Unhealthy}
	}
	return false, nil
}

// Release releases the key, and returns when others may win it. The error wraps [election.ErrNotLeader] if the key was lost before.
func (c *Candidacy) Release() error {
	defer c.Cancel()
	return c.election.Resign(context.WithoutCancel(c.Context))
}

// WaitDone waits until the election has returned: then the key is released if it was held, and a new candidacy may begin. If ctx ends
// before, WaitDone returns its error. A nil candidacy is done.
func (c *Candidacy) WaitDone(ctx context.Context) error {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns the candidacy of e when e leads. If that cannot be, or ctx ends before, it returns the reason along with the candidacy, which
// has ended or is about to.
func Wait(ctx context.Context, e *election.Election) (*Candidacy, error) {
	c := Start(ctx, e)
	return c, c.wait(ctx, nil)
}

// Try is Wait, and gives up with a HeldError when it reads that another candidate leads, or when an operator's pause or a health check that fails holds
// the candidate back. The candidacy is nil if e did not campaign at all.
func Try(ctx context.Context, e *election.Election) (*Candidacy, error) {
	other, err := anotherHolder(ctx, e)
	switch {
	case err != nil:
		return nil, err
	case other.State == election.LeaderState:
		return nil, heldBy(other)
	}
	poll := time.NewTicker(readInterval)
	defer poll.Stop()
	c := Start(ctx, e)
	return c, c.wait(ctx, poll.C)
}

// wait waits until the candidacy is decided or ctx ends. At each poll of a campaign it checks whether the key can be had still.
func (c *Candidacy) wait(ctx context.Context, poll <-chan time.Time) error {
	var elect election.Leader // that was seen, and since when
	var since time.Time
	for {
		select {
		case <-c.Decided:
			return c.Err
		case <-ctx.Done():
			c.Cancel()
			return ctx.Err()
		case <-poll:
		}
		if _, err := c.HeldBack(); err != nil {
			c.Cancel()
			return err
		}
		if c.election.State() != election.CandidateState {
			continue
		}
		other, err := anotherHolder(ctx, c.election)
		if err != nil || c.election.State() != election.CandidateState {
			continue
		}
		if other.Instance != elect.Instance || other.Name != elect.Name {
			elect, since = other, time.Now()
		}
		if other.State == election.LeaderState || other.State == election.LeaderElectState && time.Since(since) >= ElectTime {
			c.Cancel()
			return heldBy(other)
		}
	}
}

// heldBy returns the error about another holder.
func heldBy(l election.Leader) HeldError {
	return HeldError{l.Key, fmt.Sprintf("is held by %q", l.Name)}
}

// anotherHolder returns the holder of the key, if it is another candidate than e.
func anotherHolder(ctx context.Context, e *election.Election) (election.Leader, error) {
	l, err := e.Leader(ctx)
	own := e.Status()
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return election.Leader{}, nil
	case err != nil:
		return election.Leader{}, err
	case l.Instance == own.Instance, l.Instance == "" && l.Name == own.Name && own.State != election.UnknownState:
		return election.Leader{}, nil
	}
	return l, nil
}
