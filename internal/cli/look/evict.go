package look

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session/claims"
)

// evictAttempts limits the deletions, because each renewal between the read and the deletion makes the deletion fail.
const evictAttempts = 5

// Evict deletes the key if the shown leader still holds it in the same term, even if the leader has renewed since, and returns the leader
// as it was deleted. A revision that is not 0 must be that of the record. The deletion names the operator. The error is a [cli.ExitError]
// if nothing was done.
func (v *View) Evict(ctx context.Context, shown *Holder, revision uint64) (*Holder, error) {
	for range evictAttempts {
		now, err := v.reread(ctx, shown, revision)
		if err != nil {
			return nil, err
		}
		err = v.remove(ctx, &now.Leader)
		switch {
		case err == nil:
			return now, nil
		case errors.Is(err, nats.ErrPermissionViolation):
			return nil, fmt.Errorf("%s was not evicted: %w", terminal.Quote(now.Name), err)
		case !errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !errors.Is(err, jetstream.ErrKeyExists):
			return nil, cli.UnknownOutcome(ctx, err, "it is not known whether %s was evicted: run %s", terminal.Quote(now.Name), v.NameCommand("info "+shown.Key))
		case revision != 0:
			return nil, cli.Negative("the record of %q has changed and no longer has revision %d; nothing was done", shown.Key, revision)
		}
	}
	return nil, cli.Negative("%s renewed too often to be evicted in %d attempts; nothing was done", terminal.Quote(shown.Name), evictAttempts)
}

// reread reads the leader again. It returns an error unless that is the shown leader in the same term.
func (v *View) reread(ctx context.Context, shown *Holder, revision uint64) (*Holder, error) {
	now, err := v.Leader(ctx, shown.Key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil, cli.Negative("%s has released %q, and nobody leads; nothing was done", terminal.Quote(shown.Name), shown.Key)
	case err != nil:
		return nil, err
	case now.Name != shown.Name || now.Instance != shown.Instance || !now.Since.Equal(shown.Since):
		return nil, cli.Negative("the leader of %q has changed: it is %s now; nothing was done", shown.Key, terminal.Quote(now.Name))
	case revision != 0 && now.Revision != revision:
		return nil, cli.Negative("the record of %q has changed and has revision %d now, not %d; nothing was done", shown.Key, now.Revision, revision)
	}
	return now, nil
}

// remove deletes the key of a leader if its record is the one that was read.
func (v *View) remove(ctx context.Context, l *election.Leader) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	return claims.Evict(ctx, kv.With(v.Bucket, nil), v.info, l.Key, l.Revision, record.Eviction{By: control.Operator(), Name: l.Name, Term: l.Term})
}
