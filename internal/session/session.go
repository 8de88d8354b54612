// Package session holds one term of an election: a candidate campaigns until it leads, and does not campaign again after that term. A
// mutex and a semaphore are made of sessions.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
)

// HeldError is the error of Try when another candidate holds the key.
type HeldError struct{ Key, By string }

func (e HeldError) Error() string { return fmt.Sprintf("%q is held by %q", e.Key, e.By) }

// readInterval is the time from one read of the key to the next while Try campaigns.
const readInterval = 50 * time.Millisecond

// Session is the campaign of one candidate, and then its one term.
type Session struct {
	Decided chan struct{}      // closed when the candidate leads, or cannot; Err, Context and Term are written before
	Err     error              // why the candidate cannot lead; nil if it leads or led
	Context context.Context    // ends when the term does
	Term    election.Term      // of the candidate
	Cancel  context.CancelFunc // ends the campaign or the term, and does not wait until the key is released

	election *election.Election
	done     chan struct{} // closed when the election has returned
}

// Options returns the options of a candidate of a session: those given, after defaults that suit sessions.
func Options(opts []election.Option) []election.Option {
	return append([]election.Option{election.WithSplay(0), settings.Fair.(election.Option)}, opts...)
}

// Start has e campaign until it leads or the session is cancelled. The session passes on the values of ctx, and ignores its end. An
// Election has one session at a time, and none after its Stop.
func Start(ctx context.Context, e *election.Election) *Session {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{Decided: make(chan struct{}), Cancel: cancel, election: e, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer cancel()
		err := e.Run(ctx, s.lead)
		if s.Context == nil { // it never led
			s.Err = cmp.Or(err, election.ErrStopped)
			close(s.Decided)
		}
	}()
	return s
}

// lead is the work of the term: it waits for the end.
func (s *Session) lead(ctx context.Context, term election.Term) error {
	s.Context, s.Term = ctx, term
	close(s.Decided)
	<-ctx.Done()
	s.Cancel() // a key that was lost is not won again without the owner's knowledge
	return nil
}

// Release releases the key, and returns when others may win it. The error wraps [election.ErrNotLeader] if the key was lost before.
func (s *Session) Release() error {
	defer s.Cancel()
	return s.election.Resign(context.WithoutCancel(s.Context))
}

// WaitDone waits until the election has returned: then the key is released if it was held, and a new session may begin. If ctx ends
// before, WaitDone returns its error. A nil session is done.
func (s *Session) WaitDone(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait returns the session of e when e leads. If that cannot be, or ctx ends before, it returns the reason along with the session, which
// has ended or is about to.
func Wait(ctx context.Context, e *election.Election) (*Session, error) {
	s := Start(ctx, e)
	return s, s.wait(ctx, nil)
}

// Try is Wait, and gives up with a HeldError when it reads that another candidate holds the key. The session is nil if e did not
// campaign at all.
func Try(ctx context.Context, e *election.Election) (*Session, error) {
	if err := checkFree(ctx, e); err != nil {
		return nil, err
	}
	poll := time.NewTicker(readInterval)
	defer poll.Stop()
	s := Start(ctx, e)
	return s, s.wait(ctx, poll.C)
}

// wait waits until the session is decided or ctx ends. At each poll of a campaign it checks whether the key is free still.
func (s *Session) wait(ctx context.Context, poll <-chan time.Time) error {
	for {
		select {
		case <-s.Decided:
			return s.Err
		case <-ctx.Done():
			s.Cancel()
			return ctx.Err()
		case <-poll:
		}
		if s.election.State() != election.CandidateState {
			continue
		}
		if held, ok := errors.AsType[HeldError](checkFree(ctx, s.election)); ok {
			s.Cancel()
			return held
		}
	}
}

// checkFree returns a HeldError if another candidate holds the key.
func checkFree(ctx context.Context, e *election.Election) error {
	l, err := e.Leader(ctx)
	own := e.Status()
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil
	case err != nil:
		return err
	case l.Instance == own.Instance, l.Instance == "" && l.Name == own.Name && own.State != election.UnknownState:
		return nil
	}
	return HeldError{Key: l.Key, By: l.Name}
}
