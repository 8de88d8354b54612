package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// plainReleaseTime is how long a release is stored that is no deletion, where candidates may campaign that only know how to create a key. Candidates of
	// this package can read the release; then it is deleted for the others.
	plainReleaseTime = 50 * time.Millisecond
	// targetHeadStart is for how long the target of a transfer has the release to itself.
	targetHeadStart = 500 * time.Millisecond
	// waiterHeadStart is the same for the first candidate in the queue of a lock, which must queue again if it is late.
	waiterHeadStart = 30 * time.Millisecond
)

// Ending is what became of the key at the end of a term.
type Ending struct {
	How EndingKind
	Err error // of the last try to release it
}

// EndingKind is what became of the key at the end of a term.
type EndingKind uint8

// The ends of a term.
const (
	KeyReleased  EndingKind = iota + 1
	KeyLost                 // the key was lost before it could be released: see Term.Reason, or Term.Lost if that is a voluntary reason
	LeaseOver               // the lease ran out before the key could be released
	TakenOver               // another candidate had the key when it was to be released
	NotConfirmed            // the release was not answered: the key is released or expires
	NotReleased             // the release failed: the key is left to expire
	WorkGoesOn              // callbacks or work have not returned in time: the key is left to expire
)

// endsLease reports whether this candidate is known to hold the key no longer.
func (k EndingKind) endsLease() bool {
	return k == KeyReleased || k == KeyLost || k == LeaseOver || k == TakenOver
}

// The end of a term: callbacks and work return, while the key is renewed, and then the key is released.
//
// The order is the promise: nothing is released before the work has returned, and if it does not return in time the key is left to expire. A
// release that is refused or not answered is tried again for as long as the lease lasts, but for no longer than one request may take.
//
//	whileDraining ── (callbacks and work return; the key is renewed meanwhile) ─┬─ release
//	                                                                            └─ too late: over
//
//	release ── tryRelease ─┬─ applied ── released ── (deleteRelease) ── over
//	                       ├─ refused ── (read, and once more if it is stale) ── releaseFound ─┬─ an earlier try was applied, or the key is free: released
//	                       │                                                                 ├─ another candidate has the key: over
//	                       │                                                                 └─ nothing is proven: try again
//	                       └─ not answered, or failed ── try again, while the lease lasts
//
//	over ── (callbacks and work return) ── returned ── (checkBucket) ── nextAfterTerm ── the next campaign, or the end of the run

// drain is what a candidate knows while a term ends.
type drain struct {
	due          time.Time          // when callbacks and work should have returned
	limit        time.Time          // of all tries to release
	mayBeApplied bool               // a try was not answered: the release may be applied
	successors   []record.Successor // that the release names
	queue        []string           // that the release lists

	// The present try to release, or the last one.
	written  *record.Record
	sent     time.Time // just before the release was sent
	tryLimit time.Time
	refusal  refusal // if it was refused
	err      error
	failure  Failure // what err means

	revision uint64 // of a release that is to be deleted, see deleteRelease
}

// beginToDrain is called when leadership has ended.
func (c *Candidate) beginToDrain(now time.Time) {
	t := c.term
	c.phase = draining
	if t.Led() {
		c.losses++
	}
	c.drain = &drain{due: now.Add(t.Lease.Timing.ReleaseTimeout)}
	c.stateChanged(Follower, t.Reason, t)
	if !t.Reason.Voluntary() {
		c.over(now, Ending{How: KeyLost})
	}
}

// whileDraining waits until callbacks and work have returned. Until then it renews the lease, so that no other candidate leads meanwhile, but
// for no longer than the release timeout.
func (c *Candidate) whileDraining(now time.Time) {
	t, d := c.term, c.drain
	until, lasts := d.due, c.lasts(now, t)
	if lasts && now.Before(d.due) {
		if !now.Before(t.renewAt) {
			c.renew(now)
			return
		}
		until = earlier(until, t.renewAt)
	}
	c.ask(Op{Kind: Wait, Doing: "waiting for callbacks and work to return", Due: d.due, Until: until, Quiet: true}, (*Candidate).drained)
}

func (c *Candidate) drained(now time.Time, r Result) {
	t := c.term
	switch {
	case r.Quiet:
		c.release(now)
	case now.Before(c.drain.due): // the key is to be renewed
	case !c.lasts(now, t):
		c.notReleased(now, Ending{How: LeaseOver})
	default:
		c.log(Warn, "Callbacks or work have not returned in time, the key is left to expire", "term", t.Number, "timeout", t.Lease.Timing.ReleaseTimeout)
		c.over(now, Ending{How: WorkGoesOn})
	}
}

// release releases the key, by a write over the revision that this candidate holds. It tries for as long as the lease lasts, but for no longer
// than one request may take: Stop must not hang because a server is gone.
func (c *Candidate) release(now time.Time) {
	t, d := c.term, c.drain
	d.limit = now.Add(min(max(0, c.left(now, t)), timing.RequestTimeout))
	d.successors, d.queue = c.successors(now, t.target, t.successors), c.queue()
	if c.Target != nil && t.target.Name != "" {
		t.target, d.successors = c.Target(t.target), nil
		if t.target.Name != "" {
			d.successors = []record.Successor{t.target}
		}
	}
	c.tryRelease(now, Result{})
}

func (c *Candidate) tryRelease(now time.Time, _ Result) {
	t, d := c.term, c.drain
	left := d.limit.Sub(now)
	if left < timing.MinTry {
		if d.err == nil {
			c.notReleased(now, Ending{How: LeaseOver})
			return
		}
		c.notReleased(now, Ending{How: NotReleased, Err: d.err})
		return
	}
	d.tryLimit = now.Add(tryTimeout(left))
	rec := c.renewal(now, t)
	rec.Released, rec.Secret, rec.Reason, rec.Queue = now.Round(0), t.secret, string(t.Reason), d.queue
	rec.SetSuccessors(d.successors)
	if t.omitMetadata {
		rec.Metadata = nil
	}
	switch {
	case t.target.Name != "" && c.Target == nil: // those who choose targets say which candidates there are
		rec.HeadStartMs = targetHeadStart.Milliseconds()
	case len(d.successors) > 0:
		rec.HeadStartMs = HeadStart.Milliseconds()
	case len(d.queue) > 0:
		rec.HeadStartMs = waiterHeadStart.Milliseconds()
	}
	d.written, d.sent = rec, now
	// A release is a record even where bare names are the rule: candidates of Choria read no value.
	c.askRelease(d.tryLimit, "releasing the key", rec, t.revision, (*Candidate).releaseWritten)
}

func (c *Candidate) releaseWritten(now time.Time, r Result) {
	t, d := c.term, c.drain
	d.err, d.failure = r.Err, r.Failure
	switch r.Outcome {
	case Applied:
		c.released(now, r.Revision)
	case Refused:
		d.refusal = refusalOf(&r)
		c.try = &try{} // only for sawOurs, which keeps in it what was read and found
		c.readKey(now, d.tryLimit, Always, (*Candidate).releaseRead)
	default:
		if r.Outcome == Unknown {
			c.doubt.add(d.written, d.sent, t.revision, t)
			d.mayBeApplied = true
		}
		if r.Failure == Ended {
			c.notReleased(now, Ending{How: NotReleased, Err: r.Err})
			return
		}
		c.releaseFailed(now, r)
	}
}

func (c *Candidate) releaseRead(now time.Time, r Result) {
	c.sawOurs(now, &r)
	d := c.drain
	if r.State.Removal == record.Gone && (!d.refusal.named || d.refusal.last > 0) { // the read may be stale
		c.waitFor(now, min(replicaLag, d.tryLimit.Sub(now)), "releasing the key", (*Candidate).readReleaseAgain)
		return
	}
	c.releaseFound(now)
}

func (c *Candidate) readReleaseAgain(now time.Time, _ Result) {
	c.readKey(now, c.drain.tryLimit, Always, (*Candidate).releaseReadAgain)
}

func (c *Candidate) releaseReadAgain(now time.Time, r Result) {
	c.sawOurs(now, &r)
	c.releaseFound(now)
}

// releaseFound finds out what a refused release means, by the sequence that the refusal names, if it names one, and by a read of the key.
func (c *Candidate) releaseFound(now time.Time) {
	t, answer, s, found := c.term, &c.drain.refusal, c.try.state, c.try.found
	switch {
	case found == ours && !s.Record.Released.IsZero(): // an earlier try was applied
		c.released(now, s.Revision)
	case found == ours: // a renewal was applied late: release over that
		t.revision = s.Revision
		c.releaseFailed(now, Result{Err: answer.err})
	case found == removed: // the key is free
		c.released(now, 0)
	case found == unclear && answer.named && answer.last == 0: // the key is free, as the refusal says
		c.released(now, 0)
	case s.Removal == record.Gone && !answer.named: // the key is free, as the read says, and the refusal does not contradict it
		c.released(now, 0)
	case found != unclear: // another candidate has the key
		c.releaseTakenOver(now)
	case answer.named && answer.last < t.revision: // the history was rewound
		c.releaseTakenOver(now)
	case answer.named && answer.last > t.revision && c.doubt.none(): // a later write, and none of our own
		c.releaseTakenOver(now)
	default:
		c.releaseFailed(now, Result{Err: answer.err})
	}
}

// releaseTakenOver ends a term whose key another candidate holds.
func (c *Candidate) releaseTakenOver(now time.Time) {
	if c.drain.mayBeApplied { // an earlier try was applied, and another candidate was quick to take the key
		c.over(now, Ending{How: KeyReleased})
		return
	}
	c.notReleased(now, Ending{How: TakenOver})
}

// releaseFailed has the key released again soon.
func (c *Candidate) releaseFailed(now time.Time, r Result) {
	if r.Failure == TooLarge {
		c.shrinkRelease()
	}
	c.log(Debug, "Release failed", "term", c.term.Number, "error", r.Err)
	c.waitFor(now, retryDelay(c.drain.limit.Sub(now)), "releasing the key", (*Candidate).tryRelease)
}

// shrinkRelease leaves something out of the next try to release: metadata that no record has had yet, then the successors and the queue but for
// the target of a transfer, and then all metadata.
func (c *Candidate) shrinkRelease() {
	t, d := c.term, c.drain
	if c.metadata.leaveOutNew() {
		return
	}
	before := len(d.successors) + len(d.queue)
	if d.successors, d.queue = nil, nil; t.target.Name != "" {
		d.successors = []record.Successor{t.target}
	}
	t.omitMetadata = before == len(d.successors)
}

// released is called when the key is released; revision is that of the release, 0 if nothing is stored under the key.
func (c *Candidate) released(now time.Time, revision uint64) {
	c.log(Info, "Key released", "term", c.term.Number)
	if len(c.drain.successors) > 0 {
		c.releasedAt = now
	}
	c.deleteRelease(now, c.drain.written, revision)
}

// notReleased reports why the key was not released. It says that the key is left to expire only where this candidate may hold it still.
func (c *Candidate) notReleased(now time.Time, e Ending) {
	t := c.term
	switch {
	case t.Lost != "":
		e.How = KeyLost
	case e.How == NotReleased && c.drain.mayBeApplied:
		e.How = NotConfirmed
	}
	if e.How == NotReleased || e.How == NotConfirmed {
		c.requestFailed(now, WriteRequest, e.Err, c.drain.failure)
	}
	c.report(Event{Kind: KeyNotReleased, Term: t, Ending: e})
	c.over(now, e)
}

// deleteRelease deletes the release of a term, or of a win that was not kept, after a moment, if it is no deletion itself: where candidates may campaign that
// only know how to create a key. No such candidate campaigns for a lock, or for a key whose releases are given targets.
func (c *Candidate) deleteRelease(now time.Time, r *record.Record, revision uint64) {
	onlyCreate := c.Plain || c.Order == ByRank && c.Target == nil && c.bucket.MarkerTTL <= 0
	if revision == 0 || !onlyCreate || c.releasesByDeletion(r) {
		c.afterRelease(now)
		return
	}
	if c.drain == nil { // a win that was not kept
		c.drain = &drain{}
	}
	c.drain.revision = revision
	c.waitFor(now, plainReleaseTime, "deleting the release", (*Candidate).deleteReleaseNow) // meanwhile it does not campaign again
}

func (c *Candidate) deleteReleaseNow(now time.Time, _ Result) {
	c.ask(Op{Kind: Delete, Doing: "deleting the release", Limit: now.Add(c.bucket.RequestTimeout()), Over: c.drain.revision}, (*Candidate).releaseDeleted)
}

func (c *Candidate) releaseDeleted(now time.Time, r Result) {
	if r.Err != nil { // if it was refused, another candidate has taken the key; otherwise the release expires
		c.log(Debug, "Release not deleted", "error", r.Err)
	}
	c.afterRelease(now)
}

// afterRelease goes on after the release of a term, or of a win that was not kept.
func (c *Candidate) afterRelease(now time.Time) {
	if c.term == nil {
		c.abandoned(now)
		return
	}
	c.over(now, Ending{How: KeyReleased})
}

// over is called when the key was released or given up. Callbacks and work may go on.
func (c *Candidate) over(now time.Time, e Ending) {
	t := c.term
	t.Outcome = e
	if e.How.endsLease() {
		c.endLease(now, t)
	}
	c.phase = returning
	c.doubt.unanswered = c.doubt.of(t)
	c.secret = record.Secret{} // the next term has its own
	if !c.stopping {           // otherwise the run ends soon, and the server is left to serve the successor
		c.recordAttempts(false)
	}
	c.report(Event{Kind: TermOver, Term: t})
	c.ask(Op{Kind: Wait, Doing: "waiting for callbacks and work to return", Due: c.drain.due, Quiet: true}, (*Candidate).returned)
}

// returned is called when callbacks and work have returned after a term.
func (c *Candidate) returned(now time.Time, _ Result) {
	t := c.term
	c.lastTerm, c.term, c.drain, c.try = t, nil, nil, nil
	switch {
	case t.Reason == Cloned:
		c.finish(true)
	case c.stopping, t.Reason == WorkEnded:
		c.finish(false)
	case !t.Reason.Voluntary() && c.bucket.Read.Before(t.sent): // the key may have expired early, because the bucket has changed
		c.checkBucket(now, WhileRuns, (*Candidate).nextAfterTerm)
	default:
		c.nextAfterTerm(now, Result{})
	}
}

// nextAfterTerm has a candidate campaign again after a term.
func (c *Candidate) nextAfterTerm(now time.Time, _ Result) {
	t := c.lastTerm
	c.lastTerm = nil
	if (t.Reason == Deleted || t.Reason == Overwritten) && c.bucket.Created.After(t.bucketReported) {
		c.log(Info, "Key was lost because the bucket was made again", "term", t.Number, "bucket", c.BucketName, "created", c.bucket.Created, "before", t.bucketReported)
	}
	if t.Reason == Transferred && t.target.Name == "" { // the target is gone, and nobody takes its place
		c.beginCampaigning(now, now, 0)
		return
	}
	if t.Reason.yields() {
		others := 2*HeadStart + ShortSpread // by then all other candidates have had their turn
		campaign := t.Lease.Timing.Interval
		if t.target.Name != "" { // if the target is gone, the key is anybody's soon: the others' first, for the target may only be far away
			others += targetHeadStart
			campaign = min(campaign, others+targetHeadStart)
		}
		c.beginCampaigning(now, now.Add(campaign), 0)
		c.wait.yields = now.Add(others)
		return
	}
	c.askBackoff(now, 1, (*Candidate).campaignAfterTerm)
}

func (c *Candidate) campaignAfterTerm(now time.Time, r Result) {
	c.beginCampaigning(now, now.Add(c.timeToNext(r)), 1)
}
