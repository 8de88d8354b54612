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
	KeyReleased    EndingKind = iota + 1
	KeyLost                   // the key, or the lease on it, was lost before it could be released: see Term.Reason, or Term.LostBy if that is a voluntary reason
	LeaseOver                 // the lease ran out before the key could be released
	KeyWithAnother            // another candidate had the key when it was to be released
	NotConfirmed              // the release was not answered: the key is released or expires
	NotReleased               // the release failed: the key is left to expire
	WorkGoesOn                // callbacks or work have not returned in time: the key is left to expire
)

// endsLease reports whether this candidate is known to hold the key no longer.
func (k EndingKind) endsLease() bool {
	return k == KeyReleased || k == KeyLost || k == LeaseOver || k == KeyWithAnother
}

// releasing is the role of a candidate whose leadership has ended, until its callbacks and work have returned: it releases the key, if it still holds it.
//
// The order is the promise: nothing is released before the work has returned, and if it does not return in time the key is left to expire. A
// release that is refused or not answered is tried again for as long as the lease lasts, but for no longer than one request may take.
type releasing struct {
	step         Step
	term         *Term
	due          time.Time          // when callbacks and work should have returned
	limit        time.Time          // of all tries to release
	mayBeApplied bool               // a try was not answered: the release may be applied
	sawNothing   bool               // a read after a refused try showed nothing, which may be stale
	successors   []record.Successor // that the release names
	queue        []string           // that the release lists

	// The present try to release, or the last one.
	written  *record.Record
	sent     time.Time // just before the release was sent
	tryLimit time.Time
	refusal  refusal // if it was refused
	err      error

	until    time.Time // the end of a pause
	revision uint64    // of a release that is to be deleted, see deletesRelease
}

// beginToRelease ends a term whose leadership has ended.
func (c *Candidate) beginToRelease(now time.Time, t *Term) role {
	if t.Led() {
		c.termsEnded++
	}
	d := &releasing{step: ReleasingWork, term: t, due: now.Add(t.Lease.Timing.ReleaseTimeout)}
	c.stateChanged(Follower, t.Reason, t)
	if !t.Reason.Voluntary() {
		return d.endTerm(c, now, Ending{How: KeyLost})
	}
	return d
}

func (d *releasing) at() Step { return d.step }

func (d *releasing) next(c *Candidate, now time.Time) Op {
	t := d.term
	switch d.step {
	case ReleasingWork:
		until := d.due
		if c.lasts(now, t) { // it is renewed, so that no other candidate leads meanwhile, but for no longer than the release timeout
			until = earlier(until, t.renewAt)
		}
		return Op{Kind: Wait, Due: d.due, Until: until, Quiet: true}
	case ReleasingWrite:
		return d.writeOp(c, now)
	case ReleasingRefused:
		return c.readOp(now, d.tryLimit, Always)
	case ReleasingPause, ReleasingPlain:
		return Op{Kind: Wait, Due: d.until, Until: d.until}
	case ReleasingDelete:
		return Op{Kind: Delete, Limit: now.Add(c.bucket.RequestTimeout()), Replaces: d.revision}
	case ReleasingReturn:
		return Op{Kind: Wait, Due: d.due, Quiet: true}
	}
	return c.loadOp(now, WhileRuns) // ReleasingBucket
}

func (d *releasing) done(c *Candidate, now time.Time, r Result) role {
	switch d.step {
	case ReleasingWork:
		return d.waited(c, now, r.Quiet)
	case ReleasingWrite:
		return d.writeDone(c, now, &r)
	case ReleasingRefused:
		return d.refused(c, now, &r)
	case ReleasingPause:
		if now.Before(d.until) {
			return d
		}
		return d.try(c, now)
	case ReleasingPlain:
		if !now.Before(d.until) {
			d.step = ReleasingDelete
		}
		return d
	case ReleasingDelete:
		if r.Err != nil { // if it was refused, another candidate has taken the key; otherwise the release expires
			c.log(Debug, "Release not deleted", "error", r.Err)
		}
		return d.endTerm(c, now, Ending{How: KeyReleased})
	case ReleasingReturn:
		if !r.Quiet {
			return d
		}
		return d.returned(c, now)
	}
	return d.goOn(c, now) // ReleasingBucket
}

// waited goes on after a wait for callbacks and work. quiet says that they have returned.
func (d *releasing) waited(c *Candidate, now time.Time, quiet bool) role {
	t := d.term
	lasts := c.lasts(now, t)
	switch {
	case quiet:
		return d.release(c, now)
	case now.Before(d.due) && lasts && !now.Before(t.renewAt):
		return c.renew(now, t, d)
	case now.Before(d.due):
		return d
	case !lasts:
		return d.notReleased(c, now, Ending{How: LeaseOver})
	}
	return d.notReleased(c, now, Ending{How: WorkGoesOn})
}

// release releases the key, by a write over the revision that this candidate holds. It tries for as long as the lease lasts, but for no longer
// than one request may take: Stop must not hang because a server is gone.
func (d *releasing) release(c *Candidate, now time.Time) role {
	t := d.term
	d.limit = now.Add(min(max(0, c.left(now, t)), timing.RequestTimeout))
	d.successors, d.queue = c.successors(now, t.target, t.successors), c.queue()
	if c.Target != nil && t.target.Name != "" {
		t.target, d.successors = c.Target(t.target), nil
		if t.target.Name != "" {
			d.successors = []record.Successor{t.target}
		}
	}
	return d.try(c, now)
}

// try tries to release the key, if there is time for it.
func (d *releasing) try(c *Candidate, now time.Time) role {
	left := d.limit.Sub(now)
	switch {
	case left >= timing.MinTry:
		d.step, d.tryLimit = ReleasingWrite, now.Add(tryTimeout(left))
		return d
	case d.err == nil:
		return d.notReleased(c, now, Ending{How: LeaseOver})
	}
	return d.notReleased(c, now, Ending{How: NotReleased, Err: d.err})
}

// writeOp returns the write of the release. The release is what a deletion carries: for a client that only knows how to create a key the
// key is free then. It lasts where the bucket is to remember how terms ended: a service that was stopped in order starts at once, however long ago that was.
// The releases of locks and slots expire, for their keys may be without number.
//
// A release is a record even where bare names are the rule: candidates of Choria read no value.
func (d *releasing) writeOp(c *Candidate, now time.Time) Op {
	t := d.term
	r := c.renewal(now, t)
	r.Released, r.Secret, r.Reason = now.Round(0), t.secret, string(t.Reason)
	if c.lean >= withoutOthers {
		d.queue, d.successors = nil, nil
		if t.target.Name != "" {
			d.successors = []record.Successor{t.target}
		}
	}
	r.Queue = d.queue
	r.SetSuccessors(d.successors)
	switch {
	case t.target.Name != "" && c.Target == nil: // those who choose targets know by themselves which candidates there are
		r.HeadStartMs = targetHeadStart.Milliseconds()
	case len(d.successors) > 0:
		r.HeadStartMs = HeadStart.Milliseconds()
	case len(d.queue) > 0:
		r.HeadStartMs = waiterHeadStart.Milliseconds()
	}
	d.written, d.sent = r, now
	deletes := c.releasesByDeletion(r)
	return Op{
		Kind: Write, Limit: d.tryLimit, Value: r.Encode(), Replaces: t.revision, Reconnects: AnyReconnects,
		Deletes: deletes, Lasts: deletes && c.bucket.Remembers && c.Order == ByRank,
	}
}

// releasesByDeletion reports whether a release is what a deletion carries.
//
// A release that passes on a stand-down is written as a record, which expires: nobody may create the key over it without having read what it passes on. So is
// the release of a candidate whose handle may change what a write does.
func (c *Candidate) releasesByDeletion(r *record.Record) bool { return c.Direct && r.StandDownMs == 0 }

// writeDone goes on once the release has returned.
func (d *releasing) writeDone(c *Candidate, now time.Time, r *Result) role {
	t := d.term
	d.err = r.Err
	switch r.Outcome {
	case Applied:
		return d.released(c, now, r.Revision)
	case Refused:
		d.refusal, d.step = refusalOf(r), ReleasingRefused
		if d.refusal.isBelow(t) {
			return d.withAnother(c, now)
		}
		return d
	case Unknown:
		c.doubt.add(d.written, d.sent, t.revision, t)
		d.mayBeApplied = true
	}
	if r.Failure == Timeout {
		c.report(Event{Kind: Suspect})
	}
	if r.Failure == Ended {
		return d.notReleased(c, now, Ending{How: NotReleased, Err: r.Err})
	}
	if r.Failure == TooLarge {
		c.leaveOut(d.written, r.Err)
	}
	return d.tryAgain(c, now, r.Err)
}

// refused goes on once the key was read after a refused release.
func (d *releasing) refused(c *Candidate, now time.Time, r *Result) role {
	t, s, f := d.term, &r.State, &d.refusal
	nothing := r.Err == nil && s.Removal == record.Gone
	sawNothing := d.sawNothing
	d.sawNothing = nothing
	switch found := c.resolve(now, t, f, r); {
	case found == ours && !s.Record.Released.IsZero(): // an earlier try was applied
		return d.released(c, now, s.Revision)
	case found == ours: // a renewal was applied late: release over that
		t.revision = s.Revision
		c.doubt.applied(&s.Record, s.Revision, t)
	case found == removed: // the key is free
		return d.released(c, now, 0)
	case found != unclear:
		return d.withAnother(c, now)
	case nothing && sawNothing && !f.named: // the key is free, as two reads say, and the refusal does not contradict it
		return d.released(c, now, 0)
	}
	return d.tryAgain(c, now, f.err)
}

// tryAgain has the key released again soon.
func (d *releasing) tryAgain(c *Candidate, now time.Time, err error) role {
	c.log(Debug, "Release failed", "term", d.term.Number, "error", err)
	d.step, d.until = ReleasingPause, now.Add(retryDelay(d.limit.Sub(now)))
	return d
}

// withAnother ends a term whose key another candidate holds.
func (d *releasing) withAnother(c *Candidate, now time.Time) role {
	if d.mayBeApplied { // an earlier try was applied, and another candidate was quick to take the key
		return d.endTerm(c, now, Ending{How: KeyReleased})
	}
	return d.notReleased(c, now, Ending{How: KeyWithAnother})
}

// released goes on once the key is released; revision is that of the release, 0 if nothing is stored under the key.
func (d *releasing) released(c *Candidate, now time.Time, revision uint64) role {
	c.log(Info, "Key released", "term", d.term.Number)
	if len(d.successors) > 0 {
		c.releasedAt = now
	}
	if revision == 0 || !d.deletesRelease(c) {
		return d.endTerm(c, now, Ending{How: KeyReleased})
	}
	d.revision, d.step, d.until = revision, ReleasingPlain, now.Add(plainReleaseTime)
	return d
}

// deletesRelease reports whether the release is to be deleted after a moment: it is no deletion itself, and candidates may campaign that only know how to
// create a key. No such candidate campaigns for a lock, or for a key whose releases are given targets.
func (d *releasing) deletesRelease(c *Candidate) bool {
	onlyCreate := c.Plain || c.Order == ByRank && c.Target == nil && c.bucket.MarkerTTL <= 0
	return onlyCreate && !c.releasesByDeletion(d.written)
}

// notReleased reports why the key was not released. It says that the key is left to expire only where this candidate may hold it still.
func (d *releasing) notReleased(c *Candidate, now time.Time, e Ending) role {
	switch {
	case d.term.LostBy != "":
		e.How = KeyLost
	case e.How == NotReleased && d.mayBeApplied:
		e.How = NotConfirmed
	}
	c.writeFailed = c.writeFailed || e.How == NotReleased || e.How == NotConfirmed
	c.report(Event{Kind: KeyNotReleased, Term: d.term, Ending: e})
	return d.endTerm(c, now, e)
}

// endTerm ends the term: the key was released or given up. Callbacks and work may go on.
func (d *releasing) endTerm(c *Candidate, now time.Time, e Ending) role {
	t := d.term
	t.Outcome = e
	if e.How.endsLease() {
		t.Lease = t.Lease.CutShort(now, c.Boot)
	}
	c.reading.repliesDoubtful = c.doubt.of(t) // if the release was not answered, the next creation may not be either
	c.term, c.secret = nil, record.Secret{}   // the next term has its own
	if !c.stopping {                          // otherwise the run ends soon, and the server is left to serve the successor
		c.recordAttempts(false)
	}
	c.report(Event{Kind: TermOver, Term: t})
	d.step = ReleasingReturn
	return d
}

// returned goes on once callbacks and work have returned after the term.
func (d *releasing) returned(c *Candidate, now time.Time) role {
	switch t := d.term; {
	case t.Reason == Cloned:
		return finished{cloned: true}
	case c.stopping, t.Reason == WorkEnded:
		return finished{}
	case !t.Reason.Voluntary() && c.bucket.Read.Before(t.sent): // the key may have expired early, because the bucket has changed
		d.step = ReleasingBucket
		return d
	}
	return d.goOn(c, now)
}

// goOn has the candidate campaign again after the term.
func (d *releasing) goOn(c *Candidate, now time.Time) role {
	t := d.term
	if (t.Reason == Deleted || t.Reason == Overwritten) && c.bucket.Created.After(t.bucketReported) {
		c.log(Info, "Key was lost because the bucket was made again", "term", t.Number, "bucket", c.BucketName, "created", c.bucket.Created, "before", t.bucketReported)
	}
	switch {
	case t.Reason == Transferred && t.target.Name == "": // the target is gone, and nobody takes its place
		return c.wait(now, now)
	case !t.Reason.yields():
		c.wait(now, now)
		return c.waitAfterFailure(now, 1)
	}
	others := 2*HeadStart + ShortSpread // by then all other candidates have had their turn
	campaign := t.Lease.Timing.Interval
	if t.target.Name != "" { // if the target is gone, the key is anybody's soon: the others' first, for the target may only be far away
		others += targetHeadStart
		campaign = min(campaign, others+targetHeadStart)
	}
	role := c.wait(now, now.Add(campaign))
	c.waiting.yields = now.Add(others)
	return role
}
