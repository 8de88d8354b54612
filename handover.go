package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// transferTimeout is how long a transfer waits for its target to lead.
	transferTimeout = 2 * time.Second
	// minTransferPoll and maxTransferPoll are how long to wait for a notification, at first and at most, before the key is read again without one.
	minTransferPoll, maxTransferPoll = 5 * time.Millisecond, 100 * time.Millisecond
)

// Resign gives up leadership in order: leadership ends at once, callbacks and work return, and then the key is released for another
// candidate. This one goes on as a candidate, but holds back for one campaign interval. Resign returns when the key is released. It
// returns [ErrNotLeader] if the key is not held, or was lost before it could be released, ctx's error if that ends before, in which case the
// resignation goes on, and another error if the server did not confirm the release, or the work did not return within the release timeout.
// The release waits for callbacks and work: inside the work call Resign with the work's context, and it returns nil as soon as leadership
// has ended; inside a callback call it in another goroutine.
func (e *Election) Resign(ctx context.Context) error {
	r, t := e.held()
	if t == nil {
		return ErrNotLeader
	}
	r.end(t, core.Resigned)
	_, err := r.waitOver(ctx, t)
	return err
}

// Transfer gives up leadership, as [Election.Resign] does, in favour of the candidate of the given name or instance, and returns when that candidate
// leads, by its own account: its IsLeader is true. First Transfer asks over NATS whether the target is there and ready, so that both
// candidates must know their connection; if the target is not ready, the error wraps [ErrNoCandidate], and this candidate leads on. The
// release names the target, which answers it at once, while the others hold back for half a second: should the target fail just then,
// one of them takes over.
//
// The error says who was quicker, or that the target has not taken over within two seconds; ctx's error means that ctx ended before the
// transfer did, which goes on. Transfer returns [ErrNotLeader] unless leadership counts. Inside the work call it with the work's context, as
// Resign.
//
// Of several candidates of one name the first that answers and is ready takes over; name one by its instance, see Status.Instance, to choose.
// If the name is this candidate's own, another candidate of that name takes over. If none answers, Transfer returns nil: the candidate of
// that name leads. It returns nil at once for this candidate's own instance.
func (e *Election) Transfer(ctx context.Context, to string) error {
	if err := validate.Name(to); err != nil {
		return err
	}
	if e.opts.PlainValue {
		return validate.Errorf("Transfer: a bare name under the key cannot say who is to take over: leave WithPlainValue out, or call Resign")
	}
	r, t := e.held()
	if t == nil || !t.leads() {
		return ErrNotLeader
	}
	if to == e.instanceID() {
		return nil
	}
	target, err := r.readyCandidate(ctx, to)
	switch {
	case err != nil:
		return fmt.Errorf("not transferred, %q leads on: %w", e.name, err)
	case target == nil:
		return nil
	}
	if err := r.handover(t, target, core.Transferred); err != nil {
		return err
	}
	if inside, err := r.waitOver(ctx, t); inside || err != nil {
		return err
	}
	return r.waitSuccessor(ctx, *target, to)
}

// held returns the term for which the key is held, and its run; nil if the key is not held.
func (e *Election) held() (*run, *activeTerm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current, e.term.Load()
}

// waitOver waits until the key is released or given up. The release waits for the work: so if ctx is the context of the work of this very term,
// waitOver returns as soon as that ends, and inside is true. It does not wait for ever either, because the caller may be a callback or the work.
func (r *run) waitOver(ctx context.Context, t *activeTerm) (inside bool, err error) {
	durations := t.Lease().Timing
	limit, cancel := context.WithTimeout(ctx, durations.ReleaseTimeout+durations.TTL)
	defer cancel()
	r.mu.Lock()
	over := t.over.Wait()
	r.mu.Unlock()
	switch err := wakeup.Wait(limit, over); {
	case err == nil:
		return false, t.outcome
	case ctx.Err() == nil:
		return false, errors.New("the key was not released in time: a callback, the work or a log handler has not returned")
	}
	ended := (*TermEndedError)(nil)
	if errors.As(context.Cause(ctx), &ended) && ended.Term == t.public && ended.Reason.voluntary() {
		return true, nil
	}
	return false, ctx.Err()
}

// handover ends leadership in favour of a candidate. The error says why it does not: the term has ended, or another handover has begun.
func (r *run) handover(t *activeTerm, to *control.Candidate, why core.Reason) error {
	var refusal core.Reason
	var refused bool
	r.beside(func(_ *run, now time.Time) []core.Event {
		refusal, refused = r.shell.Handover(now, &t.Term, record.Successor{Name: to.Name, ID: record.QueueID(to.Instance)}, why)
		return nil
	})
	switch {
	case refused && refusal == "":
		return fmt.Errorf("%w any more: another handover has begun", ErrNotLeader)
	case refused:
		return &TermEndedError{t.public, Reason(refusal)}
	}
	return nil
}

// readyCandidate returns another candidate of the given name or instance that would answer a release now. If none would, it returns an error, and the
// last such candidate that answered though it is not ready. If the name is this candidate's own and no other of that name answers, it returns nil and no
// error.
func (r *run) readyCandidate(ctx context.Context, to string) (target *control.Candidate, err error) {
	if r.member == nil {
		return nil, fmt.Errorf("%w %q can be asked for without a connection: use a bucket of OpenBucket or CreateBucket, or WithJetStream", ErrNoCandidate, to)
	}
	err = r.member.Meet(ctx, to, r.took()*9/8, func(c control.Candidate) (enough bool) {
		if (c.Name == to || c.Instance == to) && c.Instance != r.instanceID() && (target == nil || c.Ready) {
			target = &c
		}
		return target != nil && target.Ready
	})
	switch {
	case target == nil && to == r.name && (err == nil || errors.Is(err, nats.ErrNoResponders)):
		return nil, nil
	case (target == nil || !target.Ready) && r.status().Holds&core.PausedByOperator != 0:
		return target, fmt.Errorf("%w takes over while the election is paused: %q is to wait until an operator has resumed it", ErrNoCandidate, to)
	case target == nil && err != nil:
		return nil, fmt.Errorf("%w %q answers: %w", ErrNoCandidate, to, err)
	case target == nil:
		return nil, fmt.Errorf("%w %q answers: it does not campaign, is cut off, or does not know its connection", ErrNoCandidate, to)
	case !target.Ready && target.LastError != "":
		return target, fmt.Errorf("%w %q is ready: its requests fail: %s", ErrNoCandidate, to, target.LastError)
	case !target.Ready:
		return target, fmt.Errorf("%w %q is ready: its state is %s, and it would not answer a release now", ErrNoCandidate, to, target.State)
	}
	return target, nil
}

// waitSuccessor waits until the target of a transfer leads, or another candidate of the name that was asked for. It reads the key to learn
// which candidate holds it, and asks that candidate whether it leads. A notification is only a reason to read the key again.
func (r *run) waitSuccessor(ctx context.Context, target control.Candidate, to string) error {
	limit, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	for delay := minTransferPoll; ; delay = min(2*delay, maxTransferPoll) {
		changed := r.nextChange()
		read, done := context.WithTimeout(limit, transferTimeout/4) // without permission to read the key no answer comes
		l, err := r.Leader(read)
		done()
		if err == nil && l.Instance != target.Instance && l.Name != to && l.Instance != r.instanceID() {
			return fmt.Errorf("released, but %q was quicker than %q", l.Name, to)
		}
		// A record with a term is not enough: the successor leads only once it has received the acknowledgement of its write.
		if instance := r.successorIn(l, err, target); instance != "" && r.member.State(limit, instance) == LeaderState.String() {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(delay):
		case <-limit.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("released, but %q has not taken over within %v", target.Name, transferTimeout)
		}
	}
}

// successorIn returns the instance of the successor, by a read of the key and its error; "" if the read shows that none leads yet. If the read shows
// nothing, because it failed or found a bare name, the successor is the target.
func (r *run) successorIn(l Leader, err error, target control.Candidate) (instance string) {
	switch {
	case errors.Is(err, ErrNoLeader):
		return ""
	case err == nil && (l.Instance == r.instanceID() || l.State == LeaderElectState): // the first, because a replica may be behind
		return ""
	case err == nil && l.Instance != "":
		return l.Instance
	}
	return target.Instance
}
