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
	result := classify(err)
	if result == applied || result == refused {
		e.wroteBlindly()
	}
	switch result {
	case applied:
		e.metrics.renewed(time.Since(sent))
		return e.confirm(ctx, t, r, rev, sent)
	case refused:
		return e.resolve(ctx, t, err)
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
	e.ear.Load().checkStalled()
	if !t.renewed(revision, sent) {
		t.end(reasonDeadline)
		return errors.New("acknowledged after the deadline")
	}
	e.ear.Load().wrote(revision, r)
	e.saw(r.leader(e.key, revision, sent, t.ttl))
	return nil
}

// resolve finds out what a refused renewal means: by the sequence that the refusal names, if it does, and by what is stored under
// the key.
func (e *Election) resolve(ctx context.Context, t *tenure, refusal error) error {
	last, named := lastSequence(refusal)
	if named && last > 0 && last < t.revision { // a history that was not rewound has nothing before our own last write
		t.end(reasonRewound)
		return refusal
	}
	e.blind.until = time.Time{} // a read may prove the loss, and refusals are rare: try it even where reads seem not to be permitted
	s, found := e.lookAtOwn(ctx, t)
	switch {
	case found == ours:
		if recognised := e.recognise(ctx, t, s); recognised != errNotRecognised {
			return recognised
		}
	case found != unclear:
		t.end(found.why())
	case named && (last == 0 || s.removal == gone && len(t.pending) == 0): // and the read does not contradict that our record is gone
		t.end(reasonDeleted)
	case named && last > t.revision && len(t.pending) == 0 && s.read.IsZero() && !e.mayArrive: // not read, but the sequence is that of no write of our own
		t.end(reasonOverwritten)
	}
	return refusal
}

// errNotRecognised says that what was read is no write whose outcome was unknown.
var errNotRecognised = errors.New("not a write whose outcome was unknown")

// recognise extends the lease by a write of ours that was read, if it is one whose outcome was unknown.
func (e *Election) recognise(ctx context.Context, t *tenure, s keyState) error {
	if sent, ok := t.pending[s.record.Attempt]; ok {
		return e.confirm(ctx, t, s.record, s.revision, sent)
	}
	t.revision = s.revision
	return errNotRecognised
}

// finding is what is stored under a key, in the eyes of the candidate that holds it or did.
type finding int

const (
	unclear   finding = iota // not read, older than what is known, nothing at all, or the bare name that we write too
	ours                     // written by this candidate
	theirs                   // written by somebody else, over what was ours
	deleted                  // the marker of a removal, over what was ours
	displaced                // what the history of our own writes could not hold
)

// why returns why a term ends with that finding; nothing if it does not.
func (f finding) why() reason {
	return map[finding]reason{theirs: reasonOverwritten, deleted: reasonDeleted, displaced: reasonRewound}[f]
}

// lookAtOwn reads the key that t holds. A read may be stale, which its revision tells: only what is at least as new as our
// last write counts, or is stored in a bucket that is newer. What somebody else wrote at a revision between the one that won and our
// own last is no stale read: there the unbroken history has nothing but our own writes. That nothing is stored proves
// nothing: a replica that lags far behind has no key either.
func (e *Election) lookAtOwn(ctx context.Context, t *tenure) (keyState, finding) {
	_, done := e.ear.Load().looking()
	s, err := e.readKey(ctx)
	if err != nil {
		done(s, err)
		e.log.Debug("Key not read", "error", err)
		return s, unclear
	}
	found := e.meaning(s, t)
	if found == unclear {
		err = errUnclear
	}
	done(s, err)
	if found == theirs {
		e.saw(s.record.leader(e.key, s.revision, s.written, t.ttl))
	}
	return s, found
}

// meaning says what it means for t that s was read.
func (e *Election) meaning(s keyState, t *tenure) finding {
	r := s.record
	switch {
	case s.removal == gone:
		return unclear
	case s.removal == kept && r.Instance == e.instance && s.revision >= t.revision:
		return ours
	case s.removal == kept && (r.Instance == e.instance || r.Instance == "" && e.opts.plain && r.Name == e.name):
		return unclear
	case s.removal == kept && (s.revision >= t.revision || r.Bucket.After(t.term.Bucket)):
		return theirs
	case s.revision >= t.revision:
		return deleted
	case s.revision >= t.term.Number:
		return displaced
	}
	return unclear
}

// errUnclear is in place of a read that tells nothing.
var errUnclear = errors.New("what was read may be older than what is stored")
