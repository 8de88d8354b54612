package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// minRenewal is the least time from one renewal to another for which something new is the reason.
	minRenewal = 10 * timing.MinPause
	// NewcomerPart bounds how often newcomers have a leader renew before its time: once in one of so many parts of the TTL. Until a candidate has been
	// notified of a renewal it knows only that the lease began before its own start, and the key expires before it can take over.
	NewcomerPart = 16
	// replicaLag is how long a leader waits before it reads the key again, because the replica that answered may have been behind.
	replicaLag = 100 * time.Millisecond
	// recognitionPart says how long the read by which a leader recognises its bucket may take: one of so many parts of the time for the try.
	recognitionPart = 4
	// secondReadTimeout is how long that read may take at least: the wait may have taken all the time of the try.
	secondReadTimeout = 50 * time.Millisecond
	// lateAnswers is the same in times of how long the server took for its last answer.
	lateAnswers = 4
)

// A leader or leader-elect: its renewals, and what a refused or unanswered renewal means for the term.
//
// The rule: a term ends only by proof that the key was lost, or at the deadline. So every read and every refusal is first turned into what it
// proves (interpret: finding; conclude: verdict), and whatever proves nothing leaves the term as it is until the next try.
//
// A try to renew goes from one step to the next:
//
//	renew ── writeRenewal ─┬─ applied ────────────────────────────── confirm ── (load: is it the same bucket?) ── extended
//	                       ├─ not sent, the connection was made again ── recognize ── (read) ── conclude ── writeRenewal
//	                       ├─ refused ── resolve ── (read, and once more if it is stale) ── conclude ─┬─ it was a late write of ours ── confirm
//	                       │                                                                        ├─ lose ── the term ends
//	                       │                                                                        └─ nothing is proven ── resolveUnclear
//	                       └─ not answered, or failed ── again soon, until the deadline
//
// A read on account of a notification joins it at conclude: see verify. Whatever conclude finds is passed to concluded, which goes on by the step.

// try is one try to renew, from the first request to its end; or one read on account of a notification.
type try struct {
	step    step
	limit   time.Time      // of the try
	sent    time.Time      // just before the renewal was sent
	written *record.Record // by the renewal
	refusal refusal        // of the renewal
	failure Failure        // of the renewal, unless it was refused
	crowd   bool           // many elections of this process share the bucket

	state *record.State // that was read last; nil if nothing was
	found finding       // what it means for the term

	applied       appliedWrite // that extends the lease once the bucket is known to be the same
	isRecognized  bool         // our last record was read just before that write was sent
	createdBefore time.Time    // when the bucket was created by what was known before
}

// step is what a try does.
type step uint8

const (
	renewing    step = iota // it writes a renewal
	recognizing             // it reads whether this is the bucket that the term was won in, before the renewal
	resolving               // it finds out what a refused renewal means
	verifying               // it reads on account of a notification, and renews nothing
)

// refusal is the answer of a server that refused a write, because another revision was stored than the write was made over.
type refusal struct {
	err   error
	last  uint64 // the sequence of what is stored, 0 if nothing is; if the answer names it
	named bool   // the answer does
}

func refusalOf(r *Result) refusal { return refusal{r.Err, r.Last, r.Named} }

// appliedWrite is a write of ours that is known to have been applied.
type appliedWrite struct {
	record   *record.Record
	revision uint64
	sent     time.Time // just before it was sent
}

// beginTerm has the candidate hold the key that it won.
func (c *Candidate) beginTerm(now time.Time, t *Term, queue []string) {
	c.phase, c.term = leading, t
	if c.stopping { // it was stopped while it campaigned, and no other candidate should see it lead
		c.endLeadership(now, t, Stopped)
	} else if t.AtOnce && c.lasts(now, t) {
		l := *t.Lease
		l.State = Leader
		t.Lease = &l
		t.renewAt = t.due()
		c.beginToLead(t)
	}
	c.recordAttempts(true)
	c.inherit(now, queue)
}

// whileLeading lists what a candidate does that holds the key, until leadership ends.
func (c *Candidate) whileLeading(a *agenda) {
	t := c.term
	if t.Lease.State == Follower {
		a.add(a.now, (*Candidate).beginToDrain)
		return
	}
	a.doing, a.due = "waiting for its next renewal", t.renewAt
	a.add(c.readDue(), (*Candidate).verify)
	a.add(t.renewAt, (*Candidate).renew)
}

// adjustRenewal brings the next renewal forward if there is a reason to.
func (c *Candidate) adjustRenewal(now time.Time) {
	t := c.term
	c.adapt(now, t) // which the last try left to be done
	if c.renewSoon {
		c.renewSoon = false
		t.renewAt = earlier(t.renewAt, t.sent.Add(minRenewal))
	}
	soon := t.sent.Add(c.bucket.TTL / NewcomerPart)
	if c.others.enough {
		soon = t.sent.Add(timing.MinPause)
	}
	if c.others.newcomer && soon.Before(t.renewAt) {
		t.regular, t.renewAt = later(t.regular, t.renewAt), later(now, soon)
	}
	c.others.newcomer, c.others.enough = false, false
}

// verify reads the key because a notification says that another candidate wrote it. The read may end the term; a notification alone never does.
// The read delays neither a renewal nor the end of leadership.
func (c *Candidate) verify(now time.Time) {
	t := c.term
	c.try = &try{step: verifying}
	limit := now.Add(min(tryTimeout(c.left(now, t)), max(t.renewAt.Sub(now), timing.MinTry)))
	c.readKey(now, limit, WhileLeads, (*Candidate).verifyRead)
}

func (c *Candidate) verifyRead(now time.Time, r Result) {
	c.sawOurs(now, &r)
	c.conclude(now)
}

// verificationEnds ends a read on account of a notification.
func (c *Candidate) verificationEnds(now time.Time, v verdict) {
	t, s := c.term, c.try.state
	c.try = nil
	if v == provesNothing && (s.Removal == record.Gone || s.Held() && s.Record.Instance != c.Instance) {
		t.bucketInDoubt = true
		t.renewAt = earlier(t.renewAt, later(now, t.sent.Add(minRenewal))) // the server's answer to a renewal proves whether the key was lost
	}
}

// finding is what a read of the key shows to the candidate that holds the key, or held it until now.
type finding uint8

const (
	unclear   finding = iota // not read, older than what is known, nothing at all, or the bare name that we write too
	ours                     // written by this candidate
	theirs                   // written by another candidate over our record
	removed                  // the marker of a removal of our record
	displaced                // a record that cannot be there unless the history of the bucket was rewound
	cloned                   // written in this candidate's name and instance by another process
	replaced                 // written by another candidate in a later bucket of this name
)

// reason returns why a term ends with that finding; "" if it does not.
func (f finding) reason() Reason {
	return [...]Reason{theirs: Overwritten, removed: Deleted, displaced: Rewound, cloned: Cloned, replaced: BucketReplaced}[f]
}

// sawOurs takes what was read of the key that is held, and interprets it: see try.state and try.found.
func (c *Candidate) sawOurs(now time.Time, r *Result) {
	y := c.try
	y.state, y.found = &r.State, unclear
	if r.Err != nil {
		c.finishRead(now, y.state, r.Err, false)
		c.log(Debug, "Key not read", "error", r.Err)
		return
	}
	t, s := c.term, y.state
	found := c.interpret(s, t)
	removedBefore := c.wasRemoved(t, s.Revision)
	c.finishRead(now, s, nil, found == unclear)
	if found == theirs || found == replaced {
		c.sawLeader(&s.Record, s.Revision, s.Written)
		if removedBefore && found == theirs { // and another candidate was quicker than this read
			found = removed
		}
	}
	y.found = found
}

// interpret says what it means for t that s was read. A read may be stale: it shows an older revision than our last write. So only a revision
// that is at least our own proves something, with two exceptions: a record of a newer bucket, and displaced.
func (c *Candidate) interpret(s *record.State, t *Term) finding {
	rec := &s.Record
	switch {
	case s.Removal == record.Gone: // a replica that lags far behind has no key either
		return unclear
	case s.Removal == record.Kept && rec.Instance == c.Instance && s.Revision >= t.revision:
		if c.doubt.foreign(s) {
			return cloned
		}
		return ours
	case s.Removal == record.Kept && rec.Instance == c.Instance && rec.Since.Equal(t.Since): // an earlier write of this term: a stale read
		return unclear
	case s.Removal == record.Kept && rec.Instance == "" && c.Plain && rec.Name == c.Name: // nobody can tell which write a bare name is
		return unclear
	case s.Removal == record.Kept && rec.Bucket().After(t.bucketReported):
		return replaced
	case s.Removal == record.Kept && s.Revision >= t.revision:
		return theirs
	case s.Revision >= t.revision:
		return removed
	case s.Revision >= t.Number:
		// From the write that won to our last write, an unbroken history has nothing but our writes of this term. This is none of them, so it is
		// no stale read.
		return displaced
	}
	return unclear
}

// wasRemoved reports whether a removal of our record was notified, at the given revision or an earlier one.
func (c *Candidate) wasRemoved(t *Term, revision uint64) bool {
	return t.revision < c.key.removal.revision && c.key.removal.revision <= revision
}

// verdict is what a finding means for the term, see conclude.
type verdict uint8

const (
	provesNothing verdict = iota
	knownBefore           // a write of ours is stored, and it was known to have been applied
	extended              // a write of ours is stored whose outcome was unknown, or a renewal was acknowledged: the lease was extended
	termEnded             // the term has ended
)

// errLost is the error of a renewal that is not made because a read has shown that the term has ended.
var errLost = errors.New("not renewed: the key was lost, as reading it shows")

// conclude draws the conclusion for the term from what was read of its key.
func (c *Candidate) conclude(now time.Time) {
	t, s := c.term, c.try.state
	switch found := c.try.found; {
	case found == unclear:
		c.concluded(now, provesNothing, nil)
	case found == ours && s.Record.Released.IsZero():
		c.adopt(now, t, s)
	case found == ours: // a release of an earlier term of ours was applied late: anybody may take the key over it
		c.endLeadership(now, t, Overwritten)
		c.concluded(now, termEnded, nil)
	default:
		c.lose(now, found.reason())
	}
}

// concluded goes on with a try for which a verdict was found. err says why the lease was not extended; nil if the refusal of the renewal says
// it. What follows:
//
//	             provesNothing     knownBefore          extended   termEnded
//	verifying    the read ends, whatever it showed: verificationEnds
//	recognizing  write the renewal write the renewal    renewed    renewalFailed
//	resolving    resolveUnclear    renewalFailed        renewed    renewalFailed
//	renewing     (it has none)     (it has none)        renewed    renewalFailed
func (c *Candidate) concluded(now time.Time, v verdict, err error) {
	y := c.try
	switch {
	case y.step == verifying:
		c.verificationEnds(now, v)
	case v == extended:
		c.renewed(now)
	case y.step == recognizing && v != termEnded:
		c.writeRenewal(now, AnyReconnects)
	case y.step == resolving && v == provesNothing:
		c.resolveUnclear(now)
	case err != nil:
		c.renewalFailed(now, err)
	case y.refusal.err != nil:
		c.renewalFailed(now, y.refusal.err)
	default:
		c.renewalFailed(now, errLost)
	}
}

// adopt takes in a write of ours that was read. If its outcome was unknown, and it was a renewal of this term, it extends the lease from when it
// was sent. Otherwise only its revision is taken over.
func (c *Candidate) adopt(now time.Time, t *Term, s *record.State) {
	if w, doubtful := c.doubt.writes[s.Record.Attempt]; doubtful && w.term == t {
		c.confirm(now, appliedWrite{&s.Record, s.Revision, w.sent})
		return
	}
	t.revision = s.Revision
	c.doubt.applied(&s.Record, s.Revision, nil)
	c.concluded(now, knownBefore, nil)
}

// lose ends a term that is known to be lost, at once. A bucket that was made again may look like a key that was overwritten or deleted; the server is
// asked which it was when the term is over, see nextAfterTerm.
func (c *Candidate) lose(now time.Time, why Reason) {
	c.endLeadership(now, c.term, why)
	c.concluded(now, termEnded, nil)
}

// renew tries once to renew the lease and sets the time of the next try. Whatever fails, short of proof that the key was lost, leaves
// the term as it is: the term ends at its deadline, and until then every try may save it.
func (c *Candidate) renew(now time.Time) {
	t := c.term
	c.adapt(now, t)
	c.correct(now, t)
	left := max(0, c.left(now, t))
	if left < timing.MinTry {
		c.endLeadership(now, t, Deadline)
		t.renewAt = now.Add(max(left, timing.MinPause))
		return
	}
	if t.Lease.State != Follower { // otherwise it only keeps the key while callbacks and work return
		c.report(Event{Kind: Campaigned, State: t.Lease.State})
	}
	c.try = &try{limit: now.Add(tryTimeout(left))}
	reconnects := t.verifiedReconnects
	if c.bucket.Pinned {
		reconnects = AnyReconnects
	}
	c.writeRenewal(now, reconnects)
}

// tryTimeout returns how long one try to renew may take: half of what is left of the lease, so that another try always finds as much time.
func tryTimeout(left time.Duration) time.Duration { return min(left/2, timing.RequestTimeout) }

// retryDelay returns the time between a try that failed and the next.
func retryDelay(left time.Duration) time.Duration {
	return min(max(left/8, timing.MinPause), 250*time.Millisecond)
}

// writeRenewal writes over the record of the term. The renewal is not sent if the connection has been made again more than the given number of
// times: then the bucket must be recognised first, see recognize.
func (c *Candidate) writeRenewal(now time.Time, reconnects uint64) {
	t := c.term
	r := c.renewal(now, t)
	if !t.omitSuccessor {
		r.Successor, r.Standbys = c.successor(now), c.standbys()
	}
	if r.Led = t.LedSince; r.Term > 0 && !t.Led() { // leadership counts from this very renewal, if it is applied
		r.Led = now.Round(0)
	}
	c.try.step, c.try.sent, c.try.written = renewing, now, r
	c.ask(Op{Kind: Write, Doing: "renewing", Limit: c.try.limit, Value: c.encode(r), Over: t.revision, Renewal: true, Reconnects: reconnects}, (*Candidate).renewalWritten)
}

// renewal returns the record of a renewal or release that is sent at the given time.
func (c *Candidate) renewal(sent time.Time, t *Term) *record.Record {
	r := c.newRecord(t.Since)
	r.Term, r.Won, r.LeaseMs = t.number(sent), string(t.won), record.Milliseconds(t.Lease.Timing.LeaseTime())
	r.Commitment, r.Predecessors = t.secret.Commitment(), t.predecessors
	if !t.BucketCreated.IsZero() {
		r.BucketCreated = t.BucketCreated // the token of the term begins with it, even if the server reports another time by now
	}
	// The other time is stated only a TTL later. If this is another bucket after all, and an earlier renewal has overwritten the record of its
	// leader, the lease of that leader is over by then.
	if t.bucketReported.After(t.BucketCreated) && sent.Sub(t.reportedSince) >= t.Lease.Timing.TTL {
		r.BucketReported = t.bucketReported
	}
	if r.Term == 0 { // the successor waits for what is left of our own stand-down
		r.StandDownMs = record.Milliseconds(t.Counts.Sub(sent))
	}
	r.Priorities = c.priorities(sent, t.priorities, t.Since)
	return r
}

// renewalWritten is called when the write of a renewal has returned.
func (c *Candidate) renewalWritten(now time.Time, r Result) {
	t, y := c.term, c.try
	if r.Reconnected {
		c.recognize(now, r.Reconnects)
		return
	}
	if r.Failure == TooLarge && (!t.omitSuccessor || c.shrinkMetadata(now, y.written, r.Err)) { // leave out the successor first, then metadata
		t.omitSuccessor = true
		c.writeRenewal(now, AnyReconnects)
		return
	}
	c.writeAnswered(now, r.Outcome)
	y.crowd, t.reconnects = r.Crowd, r.Reconnects
	switch r.Outcome {
	case Applied:
		c.report(Event{Kind: Renewed, Took: now.Sub(y.sent)})
		c.metadataStored(y.written)
		c.confirm(now, appliedWrite{y.written, r.Revision, y.sent})
	case Refused:
		y.refusal = refusalOf(&r)
		c.resolve(now)
	case Unknown:
		c.doubt.add(y.written, y.sent, t.revision, t)
		y.failure = r.Failure
		c.renewalFailed(now, r.Err)
	default:
		y.failure = r.Failure
		c.renewalFailed(now, r.Err)
	}
}

// recognize reads the key before the first renewal after a reconnection. The server may have restarted. If the bucket was made again meanwhile,
// the renewal may hit another candidate's record; if it is the same bucket, the server may still report another time of creation. A read that
// shows our last record settles which it is, see confirm. It is left out if so little of the lease is left that the renewal needs the time.
func (c *Candidate) recognize(now time.Time, reconnects uint64) {
	t := c.term
	t.reconnects = reconnects
	timeout := tryTimeout(max(0, c.left(now, t))) / recognitionPart
	if timeout < c.bucket.Took {
		c.writeRenewal(now, AnyReconnects)
		return
	}
	c.try.step = recognizing
	c.readKey(now, earlier(c.try.limit, now.Add(timeout)), Always, (*Candidate).recognized)
}

func (c *Candidate) recognized(now time.Time, r Result) {
	c.sawOurs(now, &r)
	if s := c.try.state; c.try.found == ours && c.doubt.isLastApplied(s) {
		c.term.recognizedAt = s.Read
	}
	c.conclude(now)
}

// renewed ends a try that has extended the lease.
func (c *Candidate) renewed(now time.Time) {
	t := c.term
	c.requestSucceeded(WriteRequest)
	c.warnOfNamesake()
	if c.try.crowd {
		c.coalesce(t)
	}
	c.untilNext = t.renewAt.Sub(now)
	c.try = nil
}

// renewalFailed ends a try that has not extended the lease: it counts and logs the failure, and sets the time of the next try.
func (c *Candidate) renewalFailed(now time.Time, err error) {
	t := c.term
	c.requestFailed(now, WriteRequest, err, c.try.failure)
	c.try = nil
	left := max(0, c.left(now, t))
	level := Debug
	if t.failures++; t.failures == 1 {
		level = Warn
	}
	c.report(Event{Kind: RenewalFailed, Term: t, Level: level, Left: left, Err: err})
	t.renewAt = now.Add(retryDelay(left))
}

// mayBeElsewhere reports whether there is reason to doubt that the bucket is the one in which the term was won. There is none for a renewal that
// is in time, acknowledged soon and free of trouble: it comes before anybody could lead in another bucket, after the usual stand-down.
func (c *Candidate) mayBeElsewhere(now time.Time, t *Term) bool {
	b := t.Lease.Timing
	late := now.Sub(t.sent) > b.Interval+b.Slack()
	otherReported := !c.hints.bucketCreated.Equal(t.bucketReported) || !c.bucket.Created.Equal(t.bucketReported)
	mayHaveRestarted := !c.bucket.Pinned && t.reconnects != t.verifiedReconnects // the server alone says which bucket it is
	return t.bucketInDoubt || t.failures > 0 || late || otherReported || mayHaveRestarted
}

// confirm extends the lease by a renewal that was applied. If the bucket may be another than the one the term was won in, the server is asked
// first: in a bucket that was made again revisions begin anew, and the renewal may have hit a successor's record that happens to have our
// revision. If the server reports a later time of creation, it is still the same bucket if our last record was read there just before the
// renewal was sent.
func (c *Candidate) confirm(now time.Time, w appliedWrite) {
	t, y := c.term, c.try
	y.applied, y.createdBefore = w, t.bucketReported
	c.doubt.applied(w.record, w.revision, t) // even if it comes too late for the lease
	y.isRecognized = !w.sent.Before(t.recognizedAt) && now.Sub(t.recognizedAt) < verifiedFor
	if t.bucketInDoubt = c.mayBeElsewhere(now, t); t.bucketInDoubt {
		c.load(now.Add(tryTimeout(max(0, c.left(now, t)))), Always, (*Candidate).confirmInBucket)
		return
	}
	c.confirmed(now)
}

func (c *Candidate) confirmInBucket(now time.Time, r Result) {
	t, y := c.term, c.try
	if r.Err == nil {
		t.verifiedReconnects = t.reconnects
		if created := c.bucket.Created; !created.Equal(y.createdBefore) {
			if !y.isRecognized || created.Before(y.createdBefore) {
				c.endLeadership(now, t, BucketReplaced)
				c.concluded(now, termEnded, fmt.Errorf("the bucket was made again at %v", created))
				return
			}
			c.log(Info, "Server reports another time of creation of the same bucket", "bucket", c.BucketName, "created", created, "before", y.createdBefore)
			t.bucketReported, t.reportedSince = created, y.applied.sent
		}
	}
	t.bucketInDoubt = r.Err != nil // then the next renewal asks again; this one still counts
	c.confirmed(now)
}

// confirmed extends the lease in a bucket that is known to be the same.
func (c *Candidate) confirmed(now time.Time) {
	t, w := c.term, c.try.applied
	c.checkStalled(now)
	lasts, counts := c.extend(now, t, w.revision, w.record.Lease(), w.sent)
	if !lasts {
		c.endLeadership(now, t, Deadline)
		c.concluded(now, termEnded, errors.New("acknowledged after the deadline"))
		return
	}
	c.wrote(now, w.revision, w.record)
	c.sawLeader(w.record, w.revision, w.sent)
	if counts {
		c.beginToLead(t)
	}
	c.concluded(now, extended, nil)
}

// resolve finds out what a refused renewal means: by the sequence that the refusal names, if it names one, and by a read of the key.
func (c *Candidate) resolve(now time.Time) {
	t, y := c.term, c.try
	y.step = resolving
	if y.refusal.named && y.refusal.last > 0 && y.refusal.last < t.revision { // our last write is gone: the history was rewound
		c.lose(now, Rewound)
		return
	}
	c.reading.until = time.Time{} // read even if reading seems not to be permitted: the read may prove the loss, and refusals are rare
	c.readKey(now, y.limit, Always, (*Candidate).resolveRead)
}

func (c *Candidate) resolveRead(now time.Time, r Result) {
	c.sawOurs(now, &r)
	t, y := c.term, c.try
	if y.state.Removal == record.Gone && y.refusal.last > 0 && c.doubt.ofBefore(t) { // the read may be too stale to show a late write of our own
		c.waitFor(now, min(replicaLag, y.limit.Sub(now)), "renewing", (*Candidate).resolveAgain)
		return
	}
	c.conclude(now)
}

func (c *Candidate) resolveAgain(now time.Time, _ Result) {
	timeout := min(tryTimeout(max(0, c.left(now, c.term))), max(secondReadTimeout, lateAnswers*c.bucket.Took))
	c.readKey(now, now.Add(timeout), Always, (*Candidate).resolveReadAgain)
}

func (c *Candidate) resolveReadAgain(now time.Time, r Result) {
	c.sawOurs(now, &r)
	c.conclude(now)
}

// resolveUnclear concludes from a refusal alone, or with a read that proves nothing.
func (c *Candidate) resolveUnclear(now time.Time) {
	t, s, answer := c.term, c.try.state, &c.try.refusal
	switch {
	case answer.named && answer.last == 0: // nothing is stored
		c.lose(now, Deleted)
	case answer.named && s.Removal == record.Gone && !c.doubt.of(t): // our record was replaced, and the read shows nothing else
		c.lose(now, Deleted)
	case answer.named && answer.last > t.revision && s.Read.IsZero() && c.doubt.none(): // not read, but another than this candidate wrote that revision
		why := Overwritten
		if c.wasRemoved(t, answer.last) {
			why = Deleted
		}
		c.lose(now, why)
	default:
		c.renewalFailed(now, answer.err)
	}
}
