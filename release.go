package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// plainGrace is how long a release stands for candidates that can read it, before the key is deleted for those that
// know only Create, in a bucket where these may stand.
const plainGrace = 50 * time.Millisecond

// release lets go of the key, over the very revision that is held. It tries for as long as the lease lasts, but no longer
// than one request may take: a stop must not hang on a server that is gone.
func (e *Election) release(ctx context.Context, t *tenure) error {
	e.busy("releasing the key")
	ctx = context.WithoutCancel(ctx)
	limit := time.Now().Add(min(t.remaining(), maxTry))
	doubt := false // whether a try may have been applied
	err := fmt.Errorf("%w: the lease has run out", ErrNotLeader)
	heirs := e.ear.Load().heirs(t.nominee, t.heirs)
	for left := time.Until(limit); left >= minTry; left = time.Until(limit) {
		var revision uint64
		if revision, err = e.tryRelease(ctx, t, heirs, tryTime(left)); err == nil {
			t.end(reasonReleased)
			e.log.Info("Key released", "term", t.term.Number)
			if revision > 0 && (e.opts.plain || !e.facts.Load().markers) {
				e.deleteRelease(ctx, revision)
			}
			return nil
		}
		if errors.Is(err, ErrNotLeader) {
			if doubt { // it was applied, and somebody was quick to take the key
				return nil
			}
			break
		}
		doubt = doubt || classify(err) == unknown
		if t.nominee == "" {
			heirs = nil // they may be what makes the release too large
		} else {
			heirs = heirs[:1]
		}
		e.log.Debug("Release failed", "term", t.term.Number, "error", err)
		pause(ctx, spacing(left))
	}
	e.failed(err)
	e.log.Warn("Key not released, it is left to expire", "term", t.term.Number, "error", err)
	return fmt.Errorf("key not released, it is left to expire: %w", err)
}

// tryRelease returns the revision of the release, 0 if nothing stands under the key, and an [ErrNotLeader] if somebody
// else has it.
func (e *Election) tryRelease(ctx context.Context, t *tenure, heirs []string, timeout time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	revision, err := e.letGo(ctx, t, heirs)
	if classify(err) != refused {
		return revision, err
	}
	last, named := lastSequence(err)
	s, found := e.lookAtOwn(ctx, t)
	switch {
	case found == ours && !s.record.Released.IsZero(): // an earlier try was applied
		return s.revision, nil
	case found == ours: // a renewal was applied late
		t.revision = s.revision
	case found == deleted, s.removal == gone && err != nil:
		return 0, nil
	case found != unclear, named && last < t.revision:
		return 0, fmt.Errorf("%w: somebody else has the key", ErrNotLeader)
	}
	return 0, err
}

// letGo writes the release: a released record, also where bare names are the rule, for candidates of Choria read no value.
func (e *Election) letGo(ctx context.Context, t *tenure, heirs []string) (revision uint64, err error) {
	r := e.recordOf(t, time.Now())
	r.Released = time.Now().Round(0)
	if len(heirs) > 0 {
		r.Next, r.HeadStartMs, r.Heirs = heirs[0], headStart.Milliseconds(), heirs[1:]
		if t.nominee != "" {
			r.HeadStartMs = transferHeadStart.Milliseconds()
		}
	}
	return e.bucket.Update(ctx, e.key, r.encode(), t.revision)
}

// deleteRelease deletes a release that nobody took, for candidates that know only Create.
func (e *Election) deleteRelease(ctx context.Context, revision uint64) {
	pause(ctx, plainGrace)
	ctx, cancel := context.WithTimeout(ctx, e.facts.Load().try()) // meanwhile it does not stand again
	defer cancel()
	// Refused means that somebody has taken it after all; after any other failure it expires.
	if err := e.bucket.Delete(ctx, e.key, jetstream.LastRevision(revision)); err != nil {
		e.log.Debug("Release not deleted", "error", err)
	}
}
