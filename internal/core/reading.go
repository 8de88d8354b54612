package core

import (
	"errors"
	"time"
)

const (
	// unansweredReads is how many reads must be unanswered, each with an answered write after it, until reading counts as not permitted,
	// where the connection does not say. After a time without reading one is enough.
	unansweredReads = 2
	// maxRest is for how many TTLs a candidate that cannot read does not try to, at most; minRest is where it begins if the connection
	// does not say that reading is not permitted. The time doubles each time.
	minRest, maxRest = 4, 80
	// patientAnswers is for how many answers of the server the first reads wait in any case.
	patientAnswers = 4
)

// errUnreadable is returned in place of reading for as long as reading is known not to be permitted.
var errUnreadable = errors.New("the key cannot be read: the server does not answer, as when it is not permitted")

// reading is how the present read of the key began, and what a candidate knows of its permission to read.
type reading struct {
	began time.Time
	hint  *hint // the notification that is the reason

	answered   bool          // a read was answered once
	suspected  bool          // the last read was not answered
	unanswered int           // reads in a row that were not answered though the write that followed was
	until      time.Time     // no read before this
	rest       time.Duration // for how long it did not read the last time
	resting    bool          // the key is known not to be readable, so that notifications are of no use
}

// readKey asks for the key until the limit. then is called with what was read, or with errUnreadable if reading is not permitted. It passes
// the result on to finishRead.
func (c *Candidate) readKey(now, limit time.Time, scope Scope, then stage) {
	p, h := &c.reading, &c.hints
	p.began, p.hint = now, h.hint
	h.readAt, h.hint = time.Time{}, nil
	if now.Before(p.until) {
		then(c, now, Result{Err: errUnreadable, Failure: Unreadable})
		return
	}
	doing := "reading the key"
	if c.phase == campaigning {
		doing = "campaigning"
	}
	c.ask(Op{
		Kind: Read, Doing: doing, Limit: limit, Scope: scope,
		Marker: !c.Connected && !h.last.known && h.source == Watch, // then what removed the key is not known
	}, then)
}

// readAnswered takes note of whether a read was answered.
func (c *Candidate) readAnswered(now time.Time, r *Result) {
	p := &c.reading
	switch {
	case r.Err == nil:
		c.requestSucceeded(ReadRequest)
		*p = reading{began: p.began, hint: p.hint, answered: true}
	case r.Failure != Timeout:
		p.suspected = false
	case r.Refusal:
		c.restFromReading(now, maxRest, r.Err)
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
		c.restFromReading(now, minRest, errUnreadable)
	}
}

// restFromReading has the candidate do without reading for a while, of so many TTLs at least.
func (c *Candidate) restFromReading(now time.Time, least time.Duration, err error) {
	p, ttl := &c.reading, c.bucket.TTL
	rest := min(max(least*ttl, 2*p.rest), maxRest*ttl)
	*p = reading{began: p.began, hint: p.hint, answered: p.answered, rest: rest, until: now.Add(rest), resting: true}
	c.log(Warn, "Key cannot be read, campaigning without", "for", rest, "error", err)
}

// campaignReadLimit returns until when a read of a campaign may take: not long while no read was ever answered, because it may not be
// permitted, and then nobody answers.
func (c *Candidate) campaignReadLimit(now time.Time) time.Time {
	timeout := c.bucket.RequestTimeout()
	if !c.reading.answered {
		timeout = min(timeout, max(c.bucket.TTL/20, patientAnswers*c.bucket.Took))
	}
	return now.Add(timeout)
}
