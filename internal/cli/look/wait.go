package look

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/observe"
)

// SuccessorTimeout is how long WaitForSuccessor waits.
const SuccessorTimeout = 2 * time.Second

const (
	vacancyPoll   = time.Second            // between two reads of a key: a key that was free from the start causes no event
	successorPoll = 5 * time.Millisecond   // between two reads of a key after a handover
	replicaLag    = 250 * time.Millisecond // by which a read after a handover may be out of date
)

// WaitForLeader returns the first leader whose leadership counts, or the first of that name if name is not empty. The
// events come from Follow. The error is the cause of ctx.
func WaitForLeader(ctx context.Context, events <-chan observe.Event, name string) (election.Leader, error) {
	for e := range events {
		leads := e.Kind == observe.Leading || e.Kind == observe.Renewed && e.Leader.Term != 0
		if leads && (name == "" || e.Leader.Name == name) {
			return e.Leader, nil
		}
	}
	return election.Leader{}, context.Cause(ctx)
}

// WaitForVacancy returns nil once the key has no holder, even if the key was free for a moment only. The events come from
// Follow. The error is the cause of ctx, or the server's refusal to have the key read.
func (v *View) WaitForVacancy(ctx context.Context, events <-chan observe.Event, key string) error {
	poll := time.NewTicker(vacancyPoll)
	defer poll.Stop()
	for {
		switch _, err := v.Leader(ctx, key); {
		case errors.Is(err, election.ErrNoLeader):
			return nil
		case errors.Is(err, nats.ErrPermissionViolation):
			return err
		}
		select {
		case <-poll.C:
		case e, ok := <-events:
			if !ok {
				return context.Cause(ctx)
			}
			if e.Kind == observe.Released || e.Kind == observe.Expired { // an eviction may be an overwrite, which leaves no vacancy
				return nil
			}
		}
	}
}

// WaitForSuccessor returns the leader after a handover, or nil if there is none within [SuccessorTimeout] or before ctx ends. The
// successor is another instance than the leader before, or that one in a later term. It leads on in the same term only if it has the name
// or instance to itself that was asked for.
func (v *View) WaitForSuccessor(ctx context.Context, key string, before election.Leader, name string) *election.Leader {
	timeout, began := time.After(SuccessorTimeout), time.Now()
	for {
		l, err := v.Observer.Leader(ctx, key)
		same := l.Instance == before.Instance && (l.Name == name || l.Instance == name) && time.Since(began) > replicaLag
		if err == nil && l.Term != 0 && (l.Instance != before.Instance || l.Term > before.Revision || same) {
			l = PrintableLeader(l)
			return &l
		}
		select {
		case <-timeout:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(successorPoll):
		}
	}
}
