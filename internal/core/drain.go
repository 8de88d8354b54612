package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
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

// Ending is what became of the key at the end of a term.
type Ending struct {
	How EndingKind
	Err error // of the last try to release it
}

// EndingKind is how a term is over.
type EndingKind uint8

// The ends of a term.
const (
	KeyReleased  EndingKind = iota + 1
	KeyLost                 // before it could be released: see Term.Reason, or Term.Lost if that is a voluntary reason
	LeaseOver               // before it could be released
	TakenOver               // somebody else had the key when it was to be released
	NotConfirmed            // the release was not answered: the key is released or expires
	NotReleased             // the key is left to expire
	WorkGoesOn              // callbacks or work have not returned in time: the key is left to expire
)

// endsLease reports whether this candidate is known to hold the key no longer.
func (k EndingKind) endsLease() bool {
	return k == KeyReleased || k == KeyLost || k == LeaseOver || k == TakenOver
}

// The end of a term goes on so:
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

// drain is the end of a term: callbacks and work return, and then the key is released.
type drain struct {
	due        time.Time // when callbacks and work should have returned
	limit      time.Time // of the tries to release
	doubt      bool      // a try may have been applied
	successors []record.Successor
	queue      []string

	written  *record.Record // by the present try
	sent     time.Time      // just before that
	tryLimit time.Time
	refusal  refusal // of the last try that was refused
	err      error   // of the last try
	failure  Failure // what that error means

	revision uint64 // of the release that is to be deleted
}

// beginToDrain is called when leadership has ended.
func (c *Candidate) beginToDrain(now time.Time) {
	t := c.term
	c.phase = draining
	if t.Led {
		c.losses++
	}
	c.drain = &drain{due: now.Add(t.Lease.Timing.ReleaseTimeout)}
	c.stateChanged(Follower, t.Reason, t)
	if !t.Reason.Voluntary() {
		c.over(now, Ending{How: KeyLost})
	}
}

// whileDraining waits until callbacks and work have returned. Until then it keeps the lease alive, so that nobody else leads meanwhile, but for
// no longer than the release timeout.
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

// release releases the key, over the very revision that is held. It tries for as long as the lease lasts, but no longer than one request
// may take: a stop must not hang on a server that is gone.
func (c *Candidate) release(now time.Time) {
	t, d := c.term, c.drain
	d.limit = now.Add(min(max(0, c.left(now, t)), timing.RequestTimeout))
	d.successors, d.queue = c.successors(t.target, t.successors), c.queue()
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
	case t.target.Name != "":
		rec.HeadStartMs = targetHeadStart.Milliseconds()
	case len(d.successors) > 0:
		rec.HeadStartMs = HeadStart.Milliseconds()
	case len(d.queue) > 0:
		rec.HeadStartMs = waiterHeadStart.Milliseconds()
	}
	d.written, d.sent = rec, now
	// A record, also where bare names are the rule, because candidates of Choria read no value.
	c.ask(Op{Kind: Write, Doing: "releasing the key", Limit: d.tryLimit, Value: rec.Encode(), Over: t.revision, Reconnects: AnyReconnects}, (*Candidate).releaseWritten)
}

func (c *Candidate) releaseWritten(now time.Time, r Result) {
	t, d := c.term, c.drain
	d.err, d.failure = r.Err, r.Failure
	switch r.Outcome {
	case Applied:
		c.released(now, r.Revision)
	case Refused:
		d.refusal = refusalOf(&r)
		c.try = &try{} // where what is read and found is kept, as for a renewal; it takes no step
		c.readKey(now, d.tryLimit, Always, (*Candidate).releaseRead)
	default:
		if r.Outcome == Unknown {
			c.doubt.add(d.written, d.sent, t.revision, t)
			d.doubt = true
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

// releaseFound finds out what a refused release means.
func (c *Candidate) releaseFound(now time.Time) {
	t, d, answer, s, found := c.term, c.drain, &c.drain.refusal, c.try.state, c.try.found
	switch {
	case found == ours && !s.Record.Released.IsZero(): // an earlier try was applied
		c.released(now, s.Revision)
		return
	case found == ours: // a renewal was applied late
		t.revision = s.Revision
	case found == removed, found == unclear && answer.named && answer.last == 0, s.Removal == record.Gone && !answer.named:
		c.released(now, 0)
		return
	case found != unclear, answer.named && answer.last < t.revision, answer.named && answer.last > t.revision && c.doubt.none():
		if d.doubt { // it was applied, and another candidate was quick to take the key
			c.over(now, Ending{How: KeyReleased})
			return
		}
		c.notReleased(now, Ending{How: TakenOver})
		return
	}
	c.releaseFailed(now, Result{Err: answer.err})
}

// releaseFailed has the key released again soon.
func (c *Candidate) releaseFailed(now time.Time, r Result) {
	t, d := c.term, c.drain
	if r.Failure == TooLarge && !c.metadata.leaveOutNew() { // candidates that come next may be left out, but for the target of a transfer, and then the metadata
		all := len(d.successors) + len(d.queue)
		if d.successors, d.queue = nil, nil; t.target.Name != "" {
			d.successors = []record.Successor{t.target}
		}
		t.omitMetadata = all == len(d.successors)
	}
	c.log(Debug, "Release failed", "term", t.Number, "error", r.Err)
	c.waitFor(now, retryDelay(d.limit.Sub(now)), "releasing the key", (*Candidate).tryRelease)
}

// released is called when the key is released; revision is that of the release, 0 if nothing is stored under the key.
func (c *Candidate) released(now time.Time, revision uint64) {
	c.log(Info, "Key released", "term", c.term.Number)
	if len(c.drain.successors) > 0 {
		c.releasedAt = now
	}
	c.deleteRelease(now, revision)
}

// notReleased reports why the key was not released. It says that the key is left to expire only where this candidate may hold it still.
func (c *Candidate) notReleased(now time.Time, e Ending) {
	t := c.term
	switch {
	case t.Lost != "":
		e.How = KeyLost
	case e.How == NotReleased && c.drain.doubt:
		e.How = NotConfirmed
	}
	if e.How == NotReleased || e.How == NotConfirmed {
		c.requestFailed(now, WriteRequest, e.Err, c.drain.failure)
	}
	c.report(Event{Kind: KeyNotReleased, Term: t, Ending: e})
	c.over(now, e)
}

// deleteRelease deletes a release that nobody took, of a term or of a win that was not kept, where candidates may campaign that know only Create;
// none does for a lock.
func (c *Candidate) deleteRelease(now time.Time, revision uint64) {
	onlyCreate := c.Plain || c.Order == ByRank && c.bucket.MarkerTTL <= 0
	if revision == 0 || !onlyCreate {
		c.afterRelease(now)
		return
	}
	if c.drain == nil { // of a win that was not kept
		c.drain = &drain{}
	}
	c.drain.revision = revision
	c.waitFor(now, plainReleaseTime, "deleting the release", (*Candidate).deleteReleaseNow) // meanwhile it does not campaign again
}

func (c *Candidate) deleteReleaseNow(now time.Time, _ Result) {
	c.ask(Op{Kind: Delete, Doing: "deleting the release", Limit: now.Add(c.bucket.RequestTimeout()), Over: c.drain.revision}, (*Candidate).releaseDeleted)
}

func (c *Candidate) releaseDeleted(now time.Time, r Result) {
	if r.Err != nil { // a refusal means that another candidate has taken the key after all; after any other failure the release expires
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
	if !c.stopping {           // else the run ends soon: the server is left to the successor
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
	case !t.Reason.Voluntary() && c.bucket.Read.Before(t.sent): // the bucket may have changed: the key may have expired early
		c.checkBucket(now, WhileRuns, (*Candidate).nextAfterTerm)
	default:
		c.nextAfterTerm(now, Result{})
	}
}

// nextAfterTerm has a candidate campaign again that has led, or could have.
func (c *Candidate) nextAfterTerm(now time.Time, _ Result) {
	t := c.lastTerm
	c.lastTerm = nil
	if t.Reason.yields() {
		c.beginCampaigning(now, now.Add(t.Lease.Timing.Interval), 0)
		c.wait.yields = now.Add(record.MaxSuccessors*HeadStart + ShortSpread)
		return
	}
	c.askBackoff(now, 1, (*Candidate).campaignAfterTerm)
}

func (c *Candidate) campaignAfterTerm(now time.Time, r Result) {
	c.beginCampaigning(now, now.Add(c.timeToNext(r)), 1)
}
