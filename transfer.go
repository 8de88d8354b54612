package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// transferHeadStart is for how long a release that is a transfer is left to the candidate that it names.
	transferHeadStart = 500 * time.Millisecond
	// transferPatience is how long that one is waited for.
	transferPatience = 2 * time.Second
	// minTransferPoll and maxTransferPoll are how long to wait, at first and at most, before the key is read again that nothing
	// was heard of.
	minTransferPoll, maxTransferPoll = 5 * time.Millisecond, 100 * time.Millisecond
)

// Transfer gives up leadership, as [Election.Resign] does, in favour of the candidate of the given name, and returns when
// that candidate leads, by its own word: its IsLeader is true. First that candidate is asked whether it is there and ready,
// over NATS, so that both need [WithJetStream]; if it is not, the error wraps [ErrNoCandidate], and this one leads on. It is
// told by the release, which it answers at once, while the others hold back for half a second: should it fail just then, one
// of them takes over.
//
// The error says who was quicker, or that the candidate has not taken over within two seconds; ctx's error means that it ended
// before the transfer did, which goes on. Transfer returns [ErrNotLeader] unless leadership counts, and nil at once if the name
// is this candidate's own. Called from inside a callback or the work it returns when the handing over has begun.
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
	met, err := e.ready(ctx, ear, name)
	if err != nil {
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
	return e.succeeded(ctx, ear, met)
}

// ready returns the candidate of that name that would answer a release now.
func (e *Election) ready(ctx context.Context, ear *ear, name string) (Candidate, error) {
	if ear.hub.conn == nil {
		return Candidate{}, fmt.Errorf("%w %q can be asked for without WithJetStream", ErrNoCandidate, name)
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
		return Candidate{}, fmt.Errorf("%w %q answers: %w", ErrNoCandidate, name, err)
	case met == nil:
		return Candidate{}, fmt.Errorf("%w %q answers: it does not stand, is cut off, or was not given WithJetStream", ErrNoCandidate, name)
	case !met.Ready:
		return Candidate{}, fmt.Errorf("%w %q is ready: it is %s, and does not hear of vacancies now", ErrNoCandidate, name, met.State)
	}
	return *met, nil
}

// succeeded waits until the candidate that was met leads, or another one of its name that took the key. It reads the key to
// learn who holds it; a notification is no more than a reason to read it again.
func (e *Election) succeeded(ctx context.Context, ear *ear, met Candidate) error {
	patient, cancel := context.WithTimeout(ctx, transferPatience)
	defer cancel()
	for delay := minTransferPoll; ; delay = min(2*delay, maxTransferPoll) {
		changed := ear.nextChange()
		read, done := context.WithTimeout(patient, transferPatience/4) // without permission to read the key no answer comes
		l, err := e.Leader(read)
		done()
		target := met.Instance
		switch {
		case errors.Is(err, ErrNoLeader) || err == nil && l.Instance == e.instance: // a replica may be behind
			target = ""
		case err == nil && l.Name != met.Name:
			return fmt.Errorf("released, but %q was quicker than %q", l.Name, met.Name)
		case err == nil && l.Instance != "" && l.Term == 0: // a leader-elect
			target = ""
		case err == nil && l.Instance != "": // not a bare name
			target = l.Instance
		}
		if target != "" && e.leads(patient, ear, target) {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(delay):
		case <-patient.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("released, but %q has not taken over within %v", met.Name, transferPatience)
		}
	}
}

// leads asks a candidate whether it leads. A record with a term does not tell: the leader may not have had the acknowledgement of
// its write yet, from which on it leads.
func (e *Election) leads(ctx context.Context, ear *ear, instance string) bool {
	for _, other := range ear.hub.listeners(e.key) {
		if other.election.instance == instance {
			return other.election.IsLeader()
		}
	}
	q, leads := ear.hub.question(e.key), false
	q.Instance = instance
	_ = askCandidates(ctx, ear.hub.conn, ear.hub.bucket.Bucket(), q, 0, func(c Candidate, _ time.Time) (enough bool) {
		leads = leads || c.Instance == instance && c.State == LeaderState
		return c.Instance == instance
	})
	return leads
}
