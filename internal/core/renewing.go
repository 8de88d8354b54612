package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// recognitionPart says how long the read by which a leader recognises its bucket may take: one of so many parts of the time for the try.
const recognitionPart = 4

// renewing is the role of a candidate that holds the key, for one try to renew; or for one read because of a hint, which renews nothing unless it shows a
// renewal that was applied late. Whatever fails, short of proof that the key was lost, leaves the term as it is: the term ends at its deadline, and until
// then every try may save it.
type renewing struct {
	step       Step
	term       *Term
	back       role           // what the candidate does afterwards: holding or releasing
	limit      time.Time      // of the try
	reconnects uint64         // the renewal is not sent if the connection was made again more often
	sent       time.Time      // just before the renewal was sent
	written    *record.Record // by the renewal
	refusal    refusal        // of the renewal
	crowd      bool           // many elections of this process share the bucket

	applied       ownWrite  // that extends the lease once the bucket is known to be the same
	sameBucket    bool      // our last record was read just before that write was sent
	createdBefore time.Time // when the bucket was created by what was known before
}

// errLost is the error of a renewal that is not made because a read has shown that the term has ended.
var errLost = errors.New("not renewed: the key was lost, as reading it shows")

// verify reads the key because a notification says that another candidate wrote it. The read may end the term; a notification alone never does.
// The read delays neither a renewal nor the end of leadership.
func (c *Candidate) verify(now time.Time, t *Term) role {
	limit := now.Add(min(tryTimeout(c.left(now, t)), max(t.renewAt.Sub(now), timing.MinTry)))
	return &renewing{step: RenewingHint, term: t, back: holding{}, limit: limit}
}

// renew tries once to renew the lease, and sets the time of the next try.
func (c *Candidate) renew(now time.Time, t *Term, back role) role {
	c.adapt(now, t)
	c.correct(now, t)
	left := max(0, c.left(now, t))
	if left < timing.MinTry {
		c.endLeadership(now, t, Deadline)
		t.renewAt = now.Add(max(left, timing.MinPause))
		return back
	}
	if t.Lease.State != Follower { // otherwise it only keeps the key while callbacks and work return
		c.report(Event{Kind: Campaigned, State: t.Lease.State})
	}
	y := &renewing{step: RenewingWrite, term: t, back: back, limit: now.Add(tryTimeout(left)), reconnects: t.sameBucketReconnects}
	if c.bucket.Pinned {
		y.reconnects = AnyReconnects
	}
	return y
}

func (y *renewing) at() Step { return y.step }

func (y *renewing) next(c *Candidate, now time.Time) Op {
	switch y.step {
	case RenewingHint:
		return c.readOp(now, y.limit, WhileLeads)
	case RenewingReconnected:
		return c.readOp(now, earlier(y.limit, now.Add(y.recognitionTime(c, now))), Always)
	case RenewingWrite:
		return y.writeOp(c, now)
	case RenewingRefused:
		c.reading.until = time.Time{} // read even if reading seems not to be permitted: the read may prove the loss, and refusals are rare
		return c.readOp(now, y.limit, Always)
	}
	op := c.loadOp(now, Always) // RenewingBucket
	op.Limit = now.Add(tryTimeout(max(0, c.left(now, y.term))))
	return op
}

func (y *renewing) done(c *Candidate, now time.Time, r Result) role {
	switch y.step {
	case RenewingWrite:
		return y.writeDone(c, now, &r)
	case RenewingBucket:
		return y.extendIn(c, now, &r)
	case RenewingRefused:
		return y.readDone(c, now, &r, c.resolve(now, y.term, &y.refusal, &r))
	}
	return y.readDone(c, now, &r, c.interpretRead(now, y.term, &r)) // RenewingHint, RenewingReconnected
}

// readDone goes on once the key was read, by what that proves.
func (y *renewing) readDone(c *Candidate, now time.Time, r *Result, found finding) role {
	t, s := y.term, &r.State
	if y.step == RenewingReconnected && found == ours && c.doubt.isLastApplied(s) {
		t.sameBucketAt = s.Read
	}
	switch {
	case found == unclear:
	case found != ours: // whether the bucket was made again is asked once the term is over
		return y.lost(c, now, found.reason())
	case !s.Record.Released.IsZero(): // a release of an earlier term of ours was applied late: anybody may take the key over it
		return y.lost(c, now, Overwritten)
	default:
		if w, extends := c.adopt(t, s); extends {
			return y.extend(c, now, w)
		}
	}
	switch { // the read has shown nothing new
	case y.step == RenewingRefused:
		return y.failed(c, now, y.refusal.err)
	case y.step == RenewingReconnected:
		y.reconnects, y.step = AnyReconnects, RenewingWrite
		return y
	case found == unclear && r.Err == nil && (s.Removal == record.Gone || s.Held() && s.Record.Instance != c.Instance):
		t.bucketInDoubt = true
		t.renewAt = earlier(t.renewAt, later(now, t.sent.Add(minRenewal))) // the server's answer to a renewal proves whether the key was lost
	}
	return y.back
}

// tryTimeout returns how long one try to renew may take: half of what is left of the lease, so that another try always finds as much time.
func tryTimeout(left time.Duration) time.Duration { return min(left/2, timing.RequestTimeout) }

// retryDelay returns the time between a try that failed and the next.
func retryDelay(left time.Duration) time.Duration {
	return min(max(left/8, timing.MinPause), 250*time.Millisecond)
}

// writeOp returns the write over the record of the term.
func (y *renewing) writeOp(c *Candidate, now time.Time) Op {
	t := y.term
	r := c.renewal(now, t)
	if c.lean < withoutOthers {
		r.Successor, r.Standbys = c.successor(now), c.standbys()
	}
	if r.Led = t.LedSince; r.Term > 0 && !t.Led() { // leadership counts from this very renewal, if it is applied
		r.Led = now.Round(0)
	}
	y.sent, y.written = now, r
	return Op{Kind: Write, Limit: y.limit, Value: c.encode(r), Replaces: t.revision, Renewal: true, Reconnects: y.reconnects}
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
		r.StandDownMs = record.Milliseconds(t.LeadsFrom.Sub(sent))
	}
	r.Priorities = c.priorities(sent, t.priorities, t.Since)
	return r
}

// writeDone goes on once the renewal has returned.
func (y *renewing) writeDone(c *Candidate, now time.Time, r *Result) role {
	t := y.term
	switch {
	case r.Reconnected: // it was not sent
		// The server may have restarted. If the bucket was made again meanwhile, the renewal may hit another candidate's record; if it is the same bucket,
		// the server may still report another time of creation. A read that shows our last record settles which it is, see extend. It is left out if so
		// little of the lease is left that the renewal needs the time.
		t.reconnects, y.step = r.Reconnects, RenewingReconnected
		if y.recognitionTime(c, now) < c.bucket.Took {
			y.reconnects, y.step = AnyReconnects, RenewingWrite
		}
		return y
	case r.Failure == TooLarge && c.leaveOut(y.written, r.Err):
		y.reconnects = AnyReconnects
		return y
	}
	c.writeAnswered(now, r.Outcome)
	y.crowd, t.reconnects = r.Crowd, r.Reconnects
	switch r.Outcome {
	case Applied:
		c.report(Event{Kind: Renewed, Took: now.Sub(y.sent)})
		c.metadataStored(y.written)
		return y.extend(c, now, ownWrite{y.written, r.Revision, y.sent})
	case Refused:
		y.refusal, y.step = refusalOf(r), RenewingRefused
		if y.refusal.isBelow(t) {
			return y.lost(c, now, Rewound)
		}
		return y
	case Unknown:
		c.doubt.add(y.written, y.sent, t.revision, t)
	}
	if r.Failure == Timeout {
		c.report(Event{Kind: Suspect})
	}
	return y.failed(c, now, r.Err)
}

// recognitionTime returns how long the read may take by which the bucket is recognised.
func (y *renewing) recognitionTime(c *Candidate, now time.Time) time.Duration {
	return tryTimeout(max(0, c.left(now, y.term))) / recognitionPart
}

// lost ends a term that is known to be lost, at once.
func (y *renewing) lost(c *Candidate, now time.Time, why Reason) role {
	c.endLeadership(now, y.term, why)
	switch {
	case y.step == RenewingHint:
		return y.back
	case y.refusal.err != nil:
		return y.failed(c, now, y.refusal.err)
	}
	return y.failed(c, now, errLost)
}

// succeeded ends a try that has extended the lease.
func (y *renewing) succeeded(c *Candidate, now time.Time) role {
	t := y.term
	c.writeFailed = false
	c.warnOfNamesake()
	if y.crowd {
		c.coalesce(t)
	}
	c.untilNext = t.renewAt.Sub(now)
	return y.back
}

// failed ends a try that has not extended the lease: it counts and logs the failure, and sets the time of the next try.
func (y *renewing) failed(c *Candidate, now time.Time, err error) role {
	t := y.term
	c.writeFailed = true
	left := max(0, c.left(now, t))
	level := Debug
	if t.failures++; t.failures == 1 {
		level = Warn
	}
	c.report(Event{Kind: RenewalFailed, Term: t, Level: level, Left: left, Err: err})
	t.renewAt = now.Add(retryDelay(left))
	return y.back
}

// mayBeElsewhere reports whether there is reason to doubt that the bucket is the one in which the term was won. There is none for a renewal that
// is in time, acknowledged soon and free of trouble: it comes before anybody could lead in another bucket, after the usual stand-down.
func (c *Candidate) mayBeElsewhere(now time.Time, t *Term) bool {
	b := t.Lease.Timing
	late := now.Sub(t.sent) > b.Interval+b.Slack()
	otherReported := !c.hints.bucketCreated.Equal(t.bucketReported) || !c.bucket.Created.Equal(t.bucketReported)
	mayHaveRestarted := !c.bucket.Pinned && t.reconnects != t.sameBucketReconnects // the server alone says which bucket it is
	return t.bucketInDoubt || t.failures > 0 || late || otherReported || mayHaveRestarted
}

// extend extends the lease by a renewal that was applied. If the bucket may be another than the one the term was won in, the server is asked
// first: in a bucket that was made again revisions begin anew, and the renewal may have hit a successor's record that happens to have our
// revision. If the server reports a later time of creation, it is still the same bucket if our last record was read there just before the
// renewal was sent.
func (y *renewing) extend(c *Candidate, now time.Time, w ownWrite) role {
	t := y.term
	y.applied, y.createdBefore = w, t.bucketReported
	c.doubt.applied(w.record, w.revision, t) // even if it comes too late for the lease
	y.sameBucket = !w.sent.Before(t.sameBucketAt) && now.Sub(t.sameBucketAt) < verifiedFor
	if t.bucketInDoubt = c.mayBeElsewhere(now, t); !t.bucketInDoubt {
		return y.extendNow(c, now)
	}
	y.step = RenewingBucket
	return y
}

// extendIn extends the lease once the bucket's info was loaded, unless this is another bucket.
func (y *renewing) extendIn(c *Candidate, now time.Time, r *Result) role {
	t := y.term
	if r.Err == nil {
		t.sameBucketReconnects = t.reconnects
		if created := c.bucket.Created; !created.Equal(y.createdBefore) {
			if !y.sameBucket || created.Before(y.createdBefore) {
				c.endLeadership(now, t, BucketReplaced)
				return y.failed(c, now, fmt.Errorf("the bucket was made again at %v", created))
			}
			c.log(Info, "Server reports another time of creation of the same bucket", "bucket", c.BucketName, "created", created, "before", y.createdBefore)
			t.bucketReported, t.reportedSince = created, y.applied.sent
		}
	}
	t.bucketInDoubt = r.Err != nil // then the next renewal asks again; this one still counts
	return y.extendNow(c, now)
}

// extendNow extends the lease in a bucket that is known to be the same.
func (y *renewing) extendNow(c *Candidate, now time.Time) role {
	t, w := y.term, y.applied
	c.checkStalled(now)
	lasts, begins := c.extend(now, t, w.revision, w.record.Lease(), w.sent)
	if !lasts {
		c.endLeadership(now, t, Deadline)
		return y.failed(c, now, errors.New("acknowledged after the deadline"))
	}
	c.wrote(now, w.revision, w.record)
	c.reportHolder(w.record, w.revision, w.sent)
	if begins {
		c.beginToLead(t)
	}
	return y.succeeded(c, now)
}
