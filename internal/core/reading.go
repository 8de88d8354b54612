package core

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Reads of the key, and whether this candidate is permitted to read.
//
// A server does not answer a read that it does not permit, and not every connection learns of the refusal. So a candidate whose reads are not
// answered, although its writes are, stops reading for a while ("rests"), campaigns without reading, and tries again later.

const (
	// unansweredReads is how many reads must be unanswered, each followed by an answered write, until reading counts as not permitted, unless
	// the connection says so. After a rest one is enough.
	unansweredReads = 2
	// minRest is for how many TTLs a candidate rests at first, and longerRest at most: each rest is twice as long as the one before. A candidate of
	// which the connection says that it may not read rests for maxRest.
	minRest, longerRest, maxRest = 4, 8, 80
	// patientAnswers is how long the first reads wait at least, in times of how long the server took for its last answer.
	patientAnswers = 4
)

// errUnreadable is returned in place of reading for as long as reading is known not to be permitted.
var errUnreadable = errors.New("the key cannot be read: the server does not answer, as when it is not permitted")

// reading is the present read of the key, and what a candidate knows of its permission to read.
type reading struct {
	began time.Time
	hint  *hint // the reason for the read; nil if it is none

	answered   bool          // a read was answered once
	suspected  bool          // the last read was not answered
	unanswered int           // reads in a row that were not answered, although the write that followed was
	until      time.Time     // the end of the rest: no read before this
	rest       time.Duration // the length of the last rest
	resting    bool          // reading counts as not permitted, until a read succeeds; notifications are of no use then
	refusedBy  incident      // since when creations are refused because of the same revision, which was not read; the zero value if they are not
}

// creationRefused takes note of the revision because of which a creation was refused that this candidate made without having read the key.
func (c *Candidate) creationRefused(now time.Time, r *Result) {
	if by := &c.reading.refusedBy; by.revision != r.Last || !r.Named {
		*by = incident{r.Last, now}
	}
}

// outlivedUnread returns the revision of a write that should have expired by now, and has not, as the refusals of creations tell; 0 if there is none.
// It is nobody's lease any more, see [Candidate.outlived].
func (c *Candidate) outlivedUnread(now time.Time) uint64 {
	if by := c.reading.refusedBy; by.revision > 0 && now.Sub(by.at) >= c.bucket.TTL+timing.ExpiryLateness {
		return by.revision
	}
	return 0
}

// readKey reads the key, until the limit. The stage then is called with what was read, or with errUnreadable during a rest; it must pass the result
// on to finishRead.
func (c *Candidate) readKey(now, limit time.Time, scope Scope, then stage) {
	p, h := &c.reading, &c.hints
	p.began, p.hint = now, h.hint
	h.readAt, h.hint = time.Time{}, nil
	if now.Before(p.until) {
		then(c, now, Result{Err: errUnreadable, Failure: Unreadable})
		return
	}
	op := Op{Kind: Read, Doing: "reading the key", Limit: limit, Scope: scope}
	if c.phase == campaigning {
		op.Doing, op.Marker = "campaigning", !c.Connected
	}
	c.ask(op, then)
}

// readAnswered takes note of whether a read was answered.
func (c *Candidate) readAnswered(now time.Time, r *Result) {
	p := &c.reading
	switch {
	case r.Err == nil:
		c.requestSucceeded(ReadRequest)
		if s := &r.State; s.Removal == record.RemovedOrExpired {
			s.Removal = c.classify(s.Removal, s.Revision, s.Written)
		}
		*p = reading{began: p.began, hint: p.hint, answered: true}
	case r.Failure != Timeout:
		p.suspected = false
	case r.Refusal:
		c.restFromReading(now, maxRest*c.bucket.TTL, r.Err)
	default:
		p.suspected = true
	}
}

// writeAnswered is called after a write: a server that answers the write, but did not answer the read before, may not permit reading.
func (c *Candidate) writeAnswered(now time.Time, outcome Outcome) {
	p := &c.reading
	if !p.suspected || outcome != Applied && outcome != Refused {
		return
	}
	p.suspected = false
	if p.unanswered++; p.unanswered >= unansweredReads || p.rest > 0 {
		c.restFromReading(now, min(max(minRest*c.bucket.TTL, 2*p.rest), longerRest*c.bucket.TTL), errUnreadable)
	}
}

// restFromReading has the candidate not read for a while.
func (c *Candidate) restFromReading(now time.Time, rest time.Duration, err error) {
	p := &c.reading
	*p = reading{began: p.began, hint: p.hint, answered: p.answered, rest: rest, until: now.Add(rest), resting: true, refusedBy: p.refusedBy}
	if attrs := []any{"for", rest, "error", err}; c.bucket.Remembers {
		c.log(Warn, "Key cannot be read, so that each release costs a TTL and a whole lease", append(attrs, "fix", "permit to publish to "+c.ReadSubject)...)
	} else {
		c.log(Warn, "Key cannot be read, campaigning without", attrs...)
	}
}

// campaignReadLimit returns when a read of a campaign ends without an answer. While no read was ever answered that is soon: reading may not be
// permitted.
func (c *Candidate) campaignReadLimit(now time.Time) time.Time {
	timeout := c.bucket.RequestTimeout()
	if !c.reading.answered {
		timeout = min(timeout, max(c.bucket.TTL/20, patientAnswers*c.bucket.Took))
	}
	return now.Add(timeout)
}
