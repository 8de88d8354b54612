package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// minRenewal is the least time from one renewal to another for which something new is the reason.
	minRenewal = 10 * settings.MinPause
	// replicaLag is how far a replica that answers a read is behind, at most, as far as a leader reckons with it.
	replicaLag = 100 * time.Millisecond
	// recognitionPart is what part of the time for a try to renew the read may take by which a leader recognises its bucket before.
	recognitionPart = 4
)

// lead holds the key until it is released or lost, and until callbacks and work have returned. It reports whether the run is finished,
// because the work returned while it led, and the work's error.
func (r *run) lead(ctx context.Context, t *activeTerm) (finished bool, err error) {
	r.update(func(s *snapshot) { s.term = t })
	defer context.AfterFunc(ctx, func() { t.end(ReasonStopped) })()
	if ctx.Err() != nil { // it was stopped while it campaigned, and no other candidate should see it lead
		t.end(ReasonStopped)
	} else if t.leadsAtOnce && t.count() {
		r.beganToLead(t)
	}
	r.listener.RecordAttempts(true)
	r.listener.Inherit(t.queue)
	r.keep(ctx, t)
	if t.led {
		r.losses.Add(1)
	}
	returned := time.Now().Add(t.ReleaseTimeout)
	r.stateChanged(CandidateState, t.reason, t)
	if t.outcome = r.drain(ctx, t); t.outcome == nil || errors.Is(t.outcome, ErrNotLeader) {
		t.endLease()
	}
	t.expiry.Stop()
	r.unanswered = r.doubt.of(t)
	r.secret = record.Secret{} // the next term has its own
	r.update(func(s *snapshot) {
		if s.term = nil; s.leader != nil && s.leader.Instance == r.instanceID() {
			s.leader = nil
		}
	})
	if ctx.Err() == nil { // else the run ends soon: the server is left to the successor
		r.listener.RecordAttempts(false)
	}
	t.mu.Lock()
	t.over.Close()
	t.mu.Unlock()
	r.watchdog.expect("waiting for callbacks and work to return", returned)
	<-r.calls.quiet()
	if t.work != nil {
		<-t.work.done
		if t.work.led {
			return true, t.work.err
		}
		if t.work.err != nil && !errors.Is(t.work.err, context.Canceled) {
			r.log.Warn("Work failed after its term had ended", "error", t.work.err)
		}
	}
	return false, nil
}

// keep renews the lease until leadership ends, and starts the work when leadership counts.
func (r *run) keep(ctx context.Context, t *activeTerm) {
	for started := false; !t.ended.Load(); {
		if !started && t.leads() {
			started = true
			if r.work != nil {
				t.work = startWork(t, r.work)
			}
			if r.opts.schedule != nil {
				r.background.Go(func() { r.relinquish(ctx, t, r.opts.schedule) })
			}
		}
		t.adapt(&r.info().Timing)
		if r.renewSoon.Swap(false) {
			t.next = timeutil.Earlier(t.next, t.sent.Add(minRenewal))
		}
		r.watchdog.expect("waiting for its next renewal", t.next)
		next, read := t.next, r.readDue()
		if !read.IsZero() {
			next = timeutil.Earlier(next, read)
		}
		switch now := time.Now(); {
		case !read.IsZero() && !now.Before(read):
			r.verify(t)
		case !now.Before(t.next):
			r.renew(ctx, t)
		default:
			r.sleep(context.Background(), next) // the end of ctx ends the term, which wakes the loop
		}
	}
}

// verify reads the key on account of a notification that somebody else wrote it. What is read may end the term; a notification alone may
// not.
func (r *run) verify(t *activeTerm) {
	r.watchdog.busy("reading the key")
	// The read delays neither a renewal nor the end of leadership.
	ctx, cancel := context.WithTimeout(t.ctx, min(tryTimeout(t.remaining()), max(time.Until(t.next), settings.MinTry)))
	defer cancel()
	s, found := r.readOwn(ctx, t)
	err := r.conclude(ctx, t, s, found) // a write that was not pending only has its revision taken over
	if errors.Is(err, errUnclear) && (s.Removal == kv.Gone || s.Held() && s.Record.Instance != r.instanceID()) {
		t.unsure = true
		t.next = timeutil.Earlier(t.next, timeutil.Later(time.Now(), t.sent.Add(minRenewal))) // the server's answer to a renewal proves it
	}
}

// conclude draws the conclusion for the term from what was read of its key. It returns nil if that was a renewal whose outcome was unknown,
// errNotPending if it was another write of ours, errKeyLost if the term has ended, and errUnclear if it proves nothing.
func (r *run) conclude(ctx context.Context, t *activeTerm, s kv.State, found finding) error {
	switch {
	case found == unclear:
		return errUnclear
	case found == ours && s.Record.Released.IsZero():
		return r.adopt(ctx, t, s)
	case found == ours: // a release of an earlier term of ours was applied late: anybody may take the key over it
		t.end(ReasonOverwritten)
	default:
		r.lose(t, found.reason())
	}
	return errKeyLost
}

var (
	// errKeyLost says that what was read ended the term, which is renewed no more.
	errKeyLost = errors.New("not renewed: the key was lost, as reading it shows")
	// errUnclear says that what was read proves nothing.
	errUnclear = errors.New("what was read proves nothing")
)

// tryTimeout returns how long one try to renew may take when so much is left of the lease: half of it, so that however slow the server
// is the next try finds as much time as the last one had.
func tryTimeout(left time.Duration) time.Duration { return min(left/2, kv.RequestTimeout) }

// retryDelay returns the time between a try that failed and the next.
func retryDelay(left time.Duration) time.Duration {
	return min(max(left/8, settings.MinPause), 250*time.Millisecond)
}

// renew tries once to renew the lease and sets the time of the next try. Whatever fails, short of proof that the key was lost, leaves
// the term as it is: the term ends at its deadline, and until then every try may save it.
func (r *run) renew(ctx context.Context, t *activeTerm) {
	r.watchdog.busy("renewing")
	t.adapt(&r.info().Timing)
	left := t.remaining()
	if left < settings.MinTry {
		t.end(ReasonDeadline)
		t.next = time.Now().Add(max(left, settings.MinPause))
		return
	}
	state := t.lease.Load().state
	if state != CandidateState { // else it only keeps the key while callbacks and work return
		r.campaigned(state)
	}
	if nc := r.bucket.Conn(); nc != nil && nc.IsReconnecting() { // the client may keep a write meanwhile, and send it after anything may have happened
		r.renewalFailed(t, nats.ErrReconnectBufExceeded)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTimeout(left))
	defer cancel()
	err := r.recognize(ctx, t)
	if errors.Is(err, errNotPending) {
		err = r.tryRenew(ctx, t)
	}
	if err != nil {
		r.renewalFailed(t, err)
		return
	}
	r.requestSucceeded(writeRequest)
	r.warnOfNamesake()
	if r.listener.InCrowd() {
		t.coalesce()
	}
	r.setWait(time.Until(t.next))
	if state == LeaderElectState && t.led {
		r.beganToLead(t)
	}
}

// mayBeElsewhere reports whether there is reason to doubt that the bucket is the one in which the term was won. Without trouble, in time and
// acknowledged soon, a renewal comes before anybody could lead in another bucket that keeps the usual stand-down.
func (r *run) mayBeElsewhere(t *activeTerm) bool {
	return t.unsure || t.failures > 0 || time.Since(t.sent) > t.Interval+t.Slack() || !r.listener.InBucket(t.bucket) || !r.info().created.Equal(t.bucket) ||
		r.mayBeRenamed(t)
}

// mayBeRenamed reports whether the server may say now that the bucket was created at another time: nothing but the server says it, and it may
// have restarted.
func (r *run) mayBeRenamed(t *activeTerm) bool {
	return !r.info().pinned && t.reconnects != r.reconnects()
}

// reconnects returns how often the connection was made again.
func (r *run) reconnects() uint64 {
	if nc := r.bucket.Conn(); nc != nil {
		return nc.Stats().Reconnects
	}
	return 0
}

// recognize reads the key before the first renewal after a reconnection, which may hit the record of another candidate in a bucket that was made
// again. Where only the server says which bucket it is, it may say something else of the same one since it has restarted. It returns
// errNotPending if the renewal is to be sent, and nil if what was read is one whose outcome was unknown. There is no such read if so little of
// the lease is left that the renewal needs the time.
func (r *run) recognize(ctx context.Context, t *activeTerm) error {
	timeout := tryTimeout(t.remaining()) / recognitionPart
	if !r.mayBeRenamed(t) || timeout < r.info().took {
		return errNotPending
	}
	read, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, found := r.readOwn(read, t)
	if found == ours && r.doubt.shown(s) {
		t.recognized = s.Read
	}
	err := r.conclude(ctx, t, s, found)
	if errors.Is(err, errUnclear) {
		return errNotPending
	}
	return err
}

// warnOfNamesake logs once that another candidate has the name of this one.
func (r *run) warnOfNamesake() {
	if other := r.listener.Namesake(); other != nil && !r.warned {
		r.warned = true
		r.log.Warn("Another candidate has the same name", "instance", other.Instance, "host", other.Host, "pid", other.PID,
			"fix", "give each candidate a name of its own: it is what people see, and what a transfer names")
	}
}

// beganToLead reports that leadership counts from now on.
func (r *run) beganToLead(t *activeTerm) {
	r.wins.Add(1)
	r.stateChanged(LeaderState, ReasonStoodDown, t)
	r.calls.leadership(t)
}

// tryRenew returns nil if the lease was extended.
func (r *run) tryRenew(ctx context.Context, t *activeTerm) error {
	sent := time.Now()
	rec := r.renewal(t, sent)
	if !t.brief {
		rec.Successor = r.listener.Successor()
	}
	revision, err := r.updateHeld(ctx, t, r.encode(rec))
	if kv.IsTooLarge(err) && (!t.brief || r.shrinkMetadata(rec, err)) { // at the next try there is less to leave out
		t.brief = true
		return r.tryRenew(ctx, t)
	}
	outcome := kv.Classify(err)
	r.writeAnswered(outcome)
	switch outcome {
	case kv.Applied:
		r.metrics.renewed(time.Since(sent))
		r.metadataStored(rec)
		return r.confirm(ctx, t, rec, revision, sent)
	case kv.Refused:
		return r.resolve(ctx, t, err)
	case kv.Unknown:
		r.doubt.add(rec, sent, t)
	}
	return err
}

// minReasonTimeout is how long the answer is waited for at least by which the reason of a loss is named.
const minReasonTimeout = 50 * time.Millisecond

// lateAnswer is how late the answer to a renewal must be at least until its sender looks for the cause, and lateAnswers for how many answers
// of the server it waits in any case.
const (
	lateAnswer  = 250 * time.Millisecond
	lateAnswers = 4
)

// updateHeld writes over the record of t. If the answer is late it asks the server about the bucket meanwhile, and the write ends early if
// the bucket is gone: a leader is subscribed to the attempts of others, so that the server finds somebody who could answer the write.
func (r *run) updateHeld(ctx context.Context, t *activeTerm, value []byte) (uint64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(max(lateAnswer, lateAnswers*r.info().took), func() {
		r.suspectConnection()
		if _, err := r.loadBucket(ctx); kv.IsGone(err) {
			cancel(kv.ErrGone)
		}
	})
	defer late.Stop()
	revision, err := r.bucket.Update(ctx, r.key, value, t.revision)
	if err != nil && errors.Is(context.Cause(ctx), kv.ErrGone) {
		err = kv.ErrGone
	}
	return revision, err
}

// renewal returns the record that a renewal or release writes which is sent at the given time.
func (r *run) renewal(t *activeTerm, sent time.Time) record.Record {
	rec := r.record(t.term.Since)
	rec.Term, rec.Won, rec.LeaseMs = t.number(sent), string(t.won), record.Milliseconds(t.LeaseTime())
	rec.Commitment, rec.Predecessors = t.secret.Commitment(), t.predecessors
	if !t.term.BucketCreated.IsZero() {
		rec.BucketCreated = t.term.BucketCreated // though another may be known by now
	}
	if t.bucket.After(t.term.BucketCreated) && sent.Sub(t.renamed) >= t.TTL {
		rec.BucketReported = t.bucket
	}
	if rec.Term == 0 { // the successor waits for what is left of our own wait for a previous leader
		rec.StandDownMs = record.Milliseconds(t.counts.Sub(sent))
	}
	rec.Priorities = r.listener.Priorities(t.priorities, t.term.Since)
	return rec
}

// renewalFailed counts and logs a try that failed, and sets the time of the next.
func (r *run) renewalFailed(t *activeTerm, err error) {
	r.requestFailed(writeRequest, err)
	r.metrics.renewalFailed(kv.Failure(err))
	left := t.remaining()
	log := r.log.Debug
	if t.failures++; t.failures == 1 {
		log = r.log.Warn
	}
	log("Renewal failed", "term", t.term.Number, "reason", kv.Failure(err), "left", left, "error", kv.Describe(err))
	t.next = time.Now().Add(retryDelay(left))
}

// confirm extends the lease by a renewal of ours that was applied at the given revision. After trouble it makes sure that this is still
// the bucket the term was won in: in a bucket that was made again meanwhile revisions begin anew, and the update may have hit a
// successor's record that has our revision by chance. It does so too when the notifier saw a newer bucket. A bucket of which the server says that
// it was created at another time, later, is still the same if our last record was read there just before the renewal was sent.
func (r *run) confirm(ctx context.Context, t *activeTerm, rec record.Record, revision uint64, sent time.Time) error {
	r.doubt.applied(rec, revision, t) // also where it comes too late for the lease
	before, recognized := t.bucket, !sent.Before(t.recognized) && time.Since(t.recognized) < verifiedFor
	if t.unsure = r.mayBeElsewhere(t); t.unsure {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTimeout(t.remaining()))
		defer cancel()
		reconnects := r.reconnects()
		_, err := r.loadBucket(ctx)
		if err == nil {
			t.reconnects = reconnects
		}
		if created := r.info().created; err == nil && !created.Equal(before) {
			if !recognized || created.Before(before) {
				t.end(ReasonBucketReplaced)
				return fmt.Errorf("the bucket was made again at %v", created)
			}
			r.log.Info("Server reports another time of creation of the same bucket", "bucket", r.bucket.Bucket(), "created", created, "before", before)
			t.bucket, t.renamed = created, sent
		}
		if err == nil && !r.listener.InBucket(t.bucket) {
			r.listener.Remake()
		}
		t.unsure = err != nil // then the next renewal checks again; a renewal that succeeded is not thrown away for it
	}
	r.listener.CheckStalled()
	if !t.renewed(revision, rec.Lease(), sent) {
		t.end(ReasonDeadline)
		return errors.New("acknowledged after the deadline")
	}
	r.listener.Wrote(revision, rec)
	r.sawLeader(leaderOf(rec, r.key, revision, sent, t.TTL))
	return nil
}

// resolve finds out what a refused renewal means: by the sequence that the refusal names, if it does, and by what is stored under the
// key.
func (r *run) resolve(ctx context.Context, t *activeTerm, refusal error) error {
	last, named := kv.LastSequence(refusal)
	if named && last > 0 && last < t.revision { // a history that was not rewound has nothing before our own last write
		r.lose(t, ReasonRewound)
		return refusal
	}
	r.reads.until = time.Time{} // a read may prove the loss, and refusals are rare: try it even where reading seems not to be permitted
	s, found := r.readOwn(ctx, t)
	if s.Removal == kv.Gone && last > 0 && r.doubt.before(t) { // a stale read shows nothing of a late write of our own
		timeutil.Sleep(ctx, replicaLag)
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.reasonTimeout(t)) // waiting may have taken all the time there was
		s, found = r.readOwn(again, t)
		cancel()
	}
	switch err := r.conclude(ctx, t, s, found); {
	case errors.Is(err, errNotPending), errors.Is(err, errKeyLost):
	case !errors.Is(err, errUnclear):
		return err
	case named && (last == 0 || s.Removal == kv.Gone && !r.doubt.of(t)): // the read does not contradict that our record is gone
		r.lose(t, ReasonDeleted)
	case named && last > t.revision && s.Read.IsZero() && len(r.doubt.writes) == 0 && !r.doubt.forgot: // not read, but the sequence is that of no write of our own
		why := ReasonOverwritten
		if r.wasRemoved(t, last) {
			why = ReasonDeleted
		}
		r.lose(t, why)
	}
	return refusal
}

// lose ends a term that is known to be lost. The server is asked first whether the bucket was made again, which looks like other losses. The
// leader leads on for that moment, no longer than the server usually takes to answer: nobody else leads before a stand-down is over. A history
// that goes back is proof that ends leadership at once, see P11 in docs/RELIABILITY.md: then nothing is asked.
func (r *run) lose(t *activeTerm, why Reason) {
	if (why == ReasonDeleted || why == ReasonOverwritten) && !t.ended.Load() && !t.term.BucketCreated.IsZero() {
		ctx, cancel := context.WithTimeout(r.ctx, r.reasonTimeout(t))
		defer cancel()
		if _, err := r.loadBucket(ctx); err == nil && !r.info().created.Equal(t.bucket) {
			why = ReasonBucketReplaced
		}
	}
	t.end(why)
}

// reasonTimeout returns how long the answer may take by which the reason of a loss is named.
func (r *run) reasonTimeout(t *activeTerm) time.Duration {
	return min(tryTimeout(t.remaining()), max(minReasonTimeout, lateAnswers*r.info().took))
}

// wasRemoved reports whether somebody removed our record, as was notified, at the given revision or before.
func (r *run) wasRemoved(t *activeTerm, revision uint64) bool {
	removed, _ := r.listener.Past()
	return t.revision < removed && removed <= revision
}

// errNotPending says that what was read is no write whose outcome was unknown.
var errNotPending = errors.New("not a write whose outcome was unknown")

// adopt extends the lease by a write of ours that was read, if it is one whose outcome was unknown.
func (r *run) adopt(ctx context.Context, t *activeTerm, s kv.State) error {
	if w, doubtful := r.doubt.writes[s.Record.Attempt]; doubtful && w.term == t {
		return r.confirm(ctx, t, s.Record, s.Revision, w.sent)
	}
	t.revision = s.Revision
	r.doubt.applied(s.Record, s.Revision, nil)
	return errNotPending
}
