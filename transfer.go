package election

import (
	"context"
	"fmt"
	"time"
)

const (
	// transferHeadStart is for how long a release that is a transfer is left to the candidate that it names.
	transferHeadStart = 500 * time.Millisecond
	// transferPatience is how long that one is waited for.
	transferPatience = 2 * time.Second
)

// Transfer gives up leadership, as [Election.Resign] does, in favour of the candidate of the given name, and returns when
// that one leads. First that candidate is asked whether it is there and ready, over NATS, so that both need
// [WithJetStream]; if it is not, the error wraps [ErrNoCandidate], and this one leads on. It is told by the release, which
// it answers at once, while the others hold back for half a second: should it fail just then, one of them takes over.
//
// The error says that, or who was quicker; ctx's error means that it ended before the transfer did, which goes on.
// Transfer returns [ErrNotLeader] unless leadership counts, and nil at once if the name is this candidate's own. Called
// from inside a callback or the work it returns when the handing over has begun.
func (e *Election) Transfer(ctx context.Context, name string) error {
	if err := validateName(name); err != nil {
		return err
	}
	if e.opts.plain {
		return invalid("Transfer: a bare name under the key cannot tell who is to take over: leave WithPlainValue out, or call Resign")
	}
	t, ear := e.tenure.Load(), e.ear.Load()
	if t == nil || ear == nil || !t.leads() {
		return ErrNotLeader
	}
	if name == e.name {
		return nil
	}
	if err := e.ready(ctx, ear, name); err != nil {
		return fmt.Errorf("not transferred, %q leads on: %w", e.name, err)
	}
	if !t.nominate(name) {
		return fmt.Errorf("%w any more: it is handed over already", ErrNotLeader)
	}
	if !t.end(reasonTransferred) {
		return fmt.Errorf("%w any more: %s", ErrNotLeader, t.reason)
	}
	if inside, err := e.handedOver(ctx, t); inside || err != nil {
		return err
	}
	return e.succeeded(ctx, ear, name)
}

// ready finds out whether a candidate of that name would answer a release now.
func (e *Election) ready(ctx context.Context, ear *ear, name string) error {
	if ear.hub.conn == nil {
		return fmt.Errorf("%w %q can be asked for without WithJetStream", ErrNoCandidate, name)
	}
	var met *Candidate
	err := ear.meet(ctx, func(c Candidate) (enough bool) {
		if c.Name == name && (met == nil || c.Ready) {
			met = &c
		}
		return met != nil && met.Ready
	})
	switch {
	case met == nil && err != nil:
		return fmt.Errorf("%w %q answers: %w", ErrNoCandidate, name, err)
	case met == nil:
		return fmt.Errorf("%w %q answers: it does not stand, is cut off, or was not given WithJetStream", ErrNoCandidate, name)
	case !met.Ready:
		return fmt.Errorf("%w %q is ready: it is %s, and does not hear of vacancies now", ErrNoCandidate, name, met.State)
	}
	return nil
}

// succeeded waits until the candidate that was named leads.
func (e *Election) succeeded(ctx context.Context, ear *ear, name string) error {
	patience := time.NewTimer(transferPatience)
	defer patience.Stop()
	for {
		changed := ear.nextChange()
		if l, err := e.Leader(ctx); err == nil && l.Instance != e.instance {
			switch {
			case l.Name != name:
				return fmt.Errorf("released, but %q was quicker than %q", l.Name, name)
			case l.Term != 0:
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			if l, err := e.Leader(ctx); err == nil && l.Name == name {
				return nil
			}
			return fmt.Errorf("released, but %q has not taken over within %v", name, transferPatience)
		}
	}
}
