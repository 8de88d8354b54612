package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tryTime returns how long one try to renew may take when so much is left of the lease: half of it, so that however slow
// the server is the next try finds as much time as the last one had.
func tryTime(left time.Duration) time.Duration { return min(left/2, maxTry) }

// spacing returns the time between a try that failed and the next.
func spacing(left time.Duration) time.Duration {
	return min(max(left/8, minPause), 250*time.Millisecond)
}

// renew tries once to renew the lease and sets the time of the next try. Whatever fails, short of proof that the key was
// lost, leaves the term as it is: it ends at its deadline, and until then every try may save it.
func (e *Election) renew(ctx context.Context, t *tenure) {
	e.busy("renewing")
	left := t.remaining()
	if left < minTry {
		t.end(reasonDeadline)
		t.next = time.Now().Add(max(left, minPause))
		return
	}
	state := t.lease.Load().state
	if state != CandidateState { // else it only keeps the key while callbacks and work wind up
		e.announcer.campaign(state)
		e.metrics.campaigned(state)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTime(left))
	defer cancel()
	if err := e.tryRenew(ctx, t); err != nil {
		e.renewalFailed(t, err)
		return
	}
	e.lastError.Store(nil)
	e.wait.Store(int64(time.Until(t.next)))
	if state == LeaderElectState && t.led {
		e.wins.Add(1)
		e.moved(LeaderState, reasonStoodDown, t)
		e.announcer.leadership(t)
	}
}

// tryRenew returns nil if the lease was extended.
func (e *Election) tryRenew(ctx context.Context, t *tenure) error {
	sent := time.Now()
	r := e.recordOf(t, sent)
	rev, err := e.bucket.Update(ctx, e.key, e.encode(r), t.revision)
	switch classify(err) {
	case applied:
		e.metrics.renewed(time.Since(sent))
		return e.confirm(ctx, t, r, rev, sent)
	case refused:
		return e.settle(ctx, t, err)
	case unknown:
		t.pending[r.Attempt] = sent
	}
	return err
}

// renewalFailed counts and logs a try that failed, and puts off the next.
func (e *Election) renewalFailed(t *tenure, err error) {
	e.failed(err)
	e.metrics.renewalFailed(failure(err))
	left := t.remaining()
	log := e.log.Debug
	if t.failures++; t.failures == 1 {
		log = e.log.Warn
	}
	log("Renewal failed", "term", t.term.Number, "reason", failure(err), "left", left, "error", err)
	t.next = time.Now().Add(spacing(left))
}

// confirm extends the lease by a renewal of ours that was applied at the given revision. After trouble it makes sure that
// this is still the bucket the term was won in: in one that was made again meanwhile revisions begin anew, and the update
// may have hit a successor's record that has our revision by chance. It does so too when others heard of a newer bucket.
// Without trouble, in time and acknowledged soon, the renewal came before anybody could have led there that keeps the usual
// stand-down.
func (e *Election) confirm(ctx context.Context, t *tenure, r record, revision uint64, sent time.Time) error {
	t.unsure = t.unsure || t.failures > 0 || time.Since(t.sent) > t.interval+t.slack() || !e.ear.Load().hub.knows(t.term.Bucket)
	if t.unsure {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTime(t.remaining()))
		defer cancel()
		f, err := e.inspect(ctx)
		if err == nil && !f.created.Equal(t.term.Bucket) {
			t.end(reasonReplaced)
			return fmt.Errorf("the bucket was made again at %v", f.created)
		}
		t.unsure = err != nil // then the next renewal looks again; a renewal that succeeded is not thrown away for it
	}
	e.ear.Load().renewed(t.revision)
	if !t.renewed(revision, sent) {
		t.end(reasonDeadline)
		return errors.New("acknowledged after the deadline")
	}
	e.saw(r.leader(e.key, revision, sent, t.ttl))
	return nil
}

// settle finds out what a refused renewal means, by what stands under the key.
func (e *Election) settle(ctx context.Context, t *tenure, refusal error) error {
	r, revision, found := e.look(ctx, t)
	if found != nothing {
		t.absences = 0
	}
	switch found {
	case ours:
		if sent, ok := t.pending[r.Attempt]; ok {
			return e.confirm(ctx, t, r, revision, sent)
		}
		t.revision = revision
	case theirs:
		t.end(reasonOverwritten)
	case nothing:
		// A replica that lags may not have the key yet, so that it takes two to tell.
		if t.absences++; t.absences > 1 {
			t.end(reasonDeleted)
		}
	}
	return refusal
}

// finding is what stands under a key, in the eyes of who holds it or did.
type finding int

const (
	unclear finding = iota // not read, older than what is known, or the bare name that we write too
	ours                   // written by this candidate
	theirs                 // written by somebody else, over what was ours
	nothing                // no key
)

// look reads what stands under the key. A read may be stale, which its revision tells: only what is at least as new as our
// last write counts, or stands in a bucket that is newer.
func (e *Election) look(ctx context.Context, t *tenure) (record, uint64, finding) {
	entry, err := e.bucket.Get(ctx, e.key)
	switch classify(err) {
	case applied:
	case absent:
		return record{}, 0, nothing
	default:
		e.log.Debug("Record not read", "error", err)
		return record{}, 0, unclear
	}
	r := parseRecord(entry.Value())
	switch {
	case r.Instance == e.instance && entry.Revision() >= t.revision:
		return r, entry.Revision(), ours
	case r.Instance == "" && e.opts.plain && r.Name == e.name:
		return r, entry.Revision(), unclear
	case entry.Revision() >= t.revision, r.Bucket.After(t.term.Bucket):
		e.saw(r.leader(e.key, entry.Revision(), entry.Created(), t.ttl))
		return r, entry.Revision(), theirs
	}
	return r, entry.Revision(), unclear
}
