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

	answered        bool          // a read was answered once
	suspected       bool          // the last read was not answered
	unanswered      int           // reads in a row that were not answered, although the write that followed was
	until           time.Time     // the end of the rest: no read before this
	rest            time.Duration // the length of the last rest
	resting         bool          // reading counts as not permitted, until a read succeeds; notifications are of no use then
	repliesDoubtful bool          // the last write was not answered, so that replies may not arrive
	refusedBy       incident      // since when creations are refused because of the same revision, which was not read; the zero value if they are not
}

// readOp returns a read of the key. During a rest it fails at once, with errUnreadable. The result is to be passed on to finishRead.
func (c *Candidate) readOp(now, limit time.Time, scope Scope) Op {
	p, h := &c.reading, &c.hints
	p.began, p.hint = now, h.hint
	h.readAt, h.hint = time.Time{}, nil
	return Op{Kind: Read, Limit: limit, Scope: scope}
}

// readAnswered takes note of whether a read was answered.
func (c *Candidate) readAnswered(now time.Time, r *Result) {
	p := &c.reading
	switch {
	case r.Err == nil:
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
	*p = reading{began: p.began, hint: p.hint, answered: p.answered, rest: rest, until: now.Add(rest), resting: true, refusedBy: p.refusedBy, repliesDoubtful: p.repliesDoubtful}
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

// createUnread creates the key without having read it.
func (b *bidding) createUnread(c *Candidate, now time.Time) role {
	predecessor := c.key.holder.record()
	return b.write(c.creation(now, &predecessor, time.Time{}))
}

// repliesArrive goes on once it is known whether a refusal has arrived.
func (b *bidding) repliesArrive(c *Candidate, now time.Time, r *Result) role {
	c.writeAnswered(now, r.Outcome)
	if c.reading.repliesDoubtful = r.Outcome == Unknown; !c.reading.repliesDoubtful {
		return b.createUnread(c, now)
	}
	c.noteWrite(r)
	c.log(Debug, "Key not created, because no reply arrives", "error", r.Err)
	return b.notWon(c, now, b.failure)
}

// outlivedAfter returns the revision of a write that should have expired by now, and has not, as the refusal of a creation tells that this candidate made
// without having read the key; 0 if there is none. Such a write is nobody's lease any more, see [Candidate.outlived].
func (c *Candidate) outlivedAfter(now time.Time, a *acquisition, r *Result) uint64 {
	if !a.readAt.IsZero() || a.replaces != 0 {
		return 0
	}
	by := &c.reading.refusedBy
	if by.revision != r.Last || !r.Named {
		*by = incident{r.Last, now}
	}
	return c.outlivedRevision(now)
}

// outlivedRevision is what outlivedAfter returned, by the TTL that is known now.
func (c *Candidate) outlivedRevision(now time.Time) uint64 {
	if by := c.reading.refusedBy; by.revision > 0 && now.Sub(by.at) >= timing.ExpiredAfter(c.bucket.TTL) {
		return by.revision
	}
	return 0
}
