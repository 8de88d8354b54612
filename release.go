package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// plainReleaseTime is how long a release is stored for candidates that can read it, before the key is deleted for candidates that
	// know only Create, in a bucket where these may campaign.
	plainReleaseTime = 50 * time.Millisecond
	// targetHeadStart is for how long the target of a transfer has the release to itself.
	targetHeadStart = 500 * time.Millisecond
	// waiterHeadStart is the same for the first that waits for a lock: if it is late it must queue again.
	waiterHeadStart = 100 * time.Millisecond
)

// drain waits until callbacks and work have returned, and then releases the key if it is still held. Until then it keeps the lease alive,
// so that nobody else leads meanwhile, but for no longer than the release timeout. The error says why the key was not released.
func (r *run) drain(ctx context.Context, t *activeTerm) error {
	if !t.reason.voluntary() {
		return &TermEndedError{t.term, t.reason}
	}
	quiet, returned := r.calls.quiet(), t.work.returned()
	timeout := time.NewTimer(t.ReleaseTimeout)
	defer timeout.Stop()
	due := time.Now().Add(t.ReleaseTimeout)
	timer := time.NewTimer(time.Until(t.next))
	defer timer.Stop()
	for quiet != nil || returned != nil {
		r.watchdog.expect("waiting for callbacks and work to return", due)
		select {
		case <-quiet:
			quiet = nil
		case <-returned:
			returned = nil
		case <-timer.C:
			if t.holdsKey() {
				r.renew(ctx, t)
				timer.Reset(time.Until(t.next))
			}
		case <-timeout.C:
			if isClosed(quiet) && isClosed(returned) {
				return r.release(ctx, t)
			}
			if !t.holdsKey() {
				return r.notReleased(t, errLeaseOver, false)
			}
			r.log.Warn("Callbacks or work have not returned in time, the key is left to expire", "term", t.term.Number, "timeout", t.ReleaseTimeout)
			return fmt.Errorf("not released: callbacks or work have not returned within %v, the key expires by itself", t.ReleaseTimeout)
		}
	}
	return r.release(ctx, t)
}

// errLeaseOver is why a key is not released that may have another holder by now.
var errLeaseOver = fmt.Errorf("%w: the lease has run out", ErrNotLeader)

// release releases the key, over the very revision that is held. It tries for as long as the lease lasts, but no longer than one request
// may take: a stop must not hang on a server that is gone.
func (r *run) release(ctx context.Context, t *activeTerm) error {
	r.watchdog.busy("releasing the key")
	ctx = context.WithoutCancel(ctx)
	limit := time.Now().Add(min(t.remaining(), kv.RequestTimeout))
	doubt, err := false, errLeaseOver // doubt: a try may have been applied
	successors, queue := r.listener.Successors(t.target, t.successors), r.listener.Queue()
	for left := time.Until(limit); left >= settings.MinTry; left = time.Until(limit) {
		var revision uint64
		if revision, err = r.tryRelease(ctx, t, successors, queue, tryTimeout(left)); err == nil {
			r.log.Info("Key released", "term", t.term.Number)
			if len(successors) > 0 {
				r.released = time.Now()
			}
			r.deleteRelease(ctx, revision)
			return nil
		}
		if doubt && errors.Is(err, ErrNotLeader) { // it was applied, and another candidate was quick to take the key
			return nil
		}
		if errors.Is(err, ErrNotLeader) || errors.Is(err, nats.ErrConnectionClosed) {
			break
		}
		doubt = doubt || kv.Classify(err) == kv.Unknown
		if kv.IsTooLarge(err) && !r.withoutNewMetadata() { // candidates that come next may be left out, but for the target of a transfer, and then the metadata
			all := len(successors) + len(queue)
			if successors, queue = nil, nil; t.target.Name != "" {
				successors = []record.Successor{t.target}
			}
			t.bare = all == len(successors)
		}
		r.log.Debug("Release failed", "term", t.term.Number, "error", kv.Describe(err))
		timeutil.Sleep(ctx, retryDelay(left))
	}
	return r.notReleased(t, err, doubt)
}

// notReleased logs and returns why the key was not released, after the given error of the last try. It says that the key is left to expire
// only where this candidate may hold it still.
func (r *run) notReleased(t *activeTerm, err error, doubt bool) error {
	if why := t.lostAfter(); why != "" {
		err = &TermEndedError{t.term, why}
	}
	if errors.Is(err, ErrNotLeader) {
		r.log.Warn("Key not released, it was lost before", "term", t.term.Number, "error", err)
		return fmt.Errorf("key not released: %w", err)
	}
	r.requestFailed(writeRequest, err)
	if doubt {
		r.log.Warn("Release not confirmed, the key is released or expires", "term", t.term.Number, "error", kv.Describe(err))
		return fmt.Errorf("release not confirmed, the key is released or expires: %w", err)
	}
	r.log.Warn("Key not released, it is left to expire", "term", t.term.Number, "error", kv.Describe(err))
	return fmt.Errorf("key not released, it is left to expire: %w", err)
}

// tryRelease returns the revision of the release, 0 if nothing is stored under the key, and an [ErrNotLeader] if somebody else has it.
func (r *run) tryRelease(ctx context.Context, t *activeTerm, successors []record.Successor, queue []string, timeout time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	revision, err := r.writeRelease(ctx, t, successors, queue)
	if kv.Classify(err) != kv.Refused {
		return revision, err
	}
	last, named := kv.LastSequence(err)
	s, found := r.readOwn(ctx, t)
	if s.Removal == kv.Gone && (!named || last > 0) { // the read may be stale
		timeutil.Sleep(ctx, replicaLag)
		s, found = r.readOwn(ctx, t)
	}
	switch {
	case found == ours && !s.Record.Released.IsZero(): // an earlier try was applied
		return s.Revision, nil
	case found == ours: // a renewal was applied late
		t.revision = s.Revision
	case found == deleted, s.Removal == kv.Gone && (!named || last == 0):
		return 0, nil
	case found != unclear, named && last < t.revision, named && last > t.revision && len(r.doubt.writes) == 0 && !r.doubt.forgot:
		return 0, fmt.Errorf("%w: somebody else has the key", ErrNotLeader)
	}
	return 0, err
}

// writeRelease writes the release: a record, also where bare names are the rule, because candidates of Choria read no value.
func (r *run) writeRelease(ctx context.Context, t *activeTerm, successors []record.Successor, queue []string) (revision uint64, err error) {
	rec := r.renewal(t, time.Now())
	rec.Released, rec.Secret, rec.Reason, rec.Queue = time.Now().Round(0), t.secret, string(t.reason), queue
	rec.SetSuccessors(successors)
	if t.bare {
		rec.Metadata = nil
	}
	switch {
	case t.target.Name != "":
		rec.HeadStartMs = targetHeadStart.Milliseconds()
	case len(successors) > 0:
		rec.HeadStartMs = notify.HeadStart.Milliseconds()
	case len(queue) > 0:
		rec.HeadStartMs = waiterHeadStart.Milliseconds()
	}
	sent := time.Now()
	revision, err = r.bucket.Update(ctx, r.key, rec.Encode(), t.revision)
	if kv.Classify(err) == kv.Unknown {
		r.doubt.add(rec, sent, t)
	}
	return revision, err
}

// deleteRelease deletes a release that nobody took, where candidates may campaign that know only Create; none does for a lock.
func (r *run) deleteRelease(ctx context.Context, revision uint64) {
	onlyCreate := r.opts.PlainValue || r.opts.order == notify.ByRank && r.info().markerTTL <= 0
	if revision == 0 || !onlyCreate {
		return
	}
	timeutil.Sleep(ctx, plainReleaseTime)
	ctx, cancel := context.WithTimeout(ctx, r.info().RequestTimeout()) // meanwhile it does not campaign again
	defer cancel()
	// A refusal means that another candidate has taken the key after all; after any other failure the release expires.
	if err := r.bucket.Delete(ctx, r.key, jetstream.LastRevision(revision)); err != nil {
		r.log.Debug("Release not deleted", "error", err)
	}
}

// abandon releases an acquisition on which this candidate has not led, with all of its stand-down. Where a callback does not
// return soon the key is left to expire.
func (r *run) abandon(ctx context.Context, a acquisition, why string, cause error) {
	r.watchdog.busy("abandoning the key that it won")
	info := r.info()
	ctx, cancel := context.WithTimeout(ctx, info.RequestTimeout())
	defer cancel()
	if kv.IsUnfit(cause) { // where a release might never expire
		err := r.bucket.Delete(ctx, r.key, jetstream.LastRevision(a.revision))
		r.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", kv.Describe(err))
		return
	}
	err := waitFor(ctx, r.calls.quiet())
	var revision uint64
	if err == nil {
		rec := r.record(a.since)
		rec.Won, rec.Released, rec.StandDownMs = string(a.reason), time.Now().Round(0), record.Milliseconds(a.standDown(info))
		rec.Commitment, rec.Predecessors, rec.Secret = r.secret.Commitment(), a.predecessors, r.secret
		if revision, err = r.bucket.Update(ctx, r.key, rec.Encode(), a.revision); kv.IsTooLarge(err) {
			rec.Metadata = nil
			revision, err = r.bucket.Update(ctx, r.key, rec.Encode(), a.revision)
		}
		if kv.Classify(err) == kv.Unknown {
			r.doubt.add(rec, a.since, nil)
		}
		r.secret = record.Secret{}
	}
	r.log.Warn("Key won, but not kept", "why", why, "cause", cause, "error", kv.Describe(err))
	r.deleteRelease(ctx, revision)
}
