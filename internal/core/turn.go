package core

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/record"
)

const (
	// ShortSpread is the time over which candidates spread what costs little when some of them do it at once: the answers to a release
	// that names no successors, and the reads after a new holder was notified. A release that is stored for 50 ms only, as in a bucket
	// that candidates of Choria share, is answered within it.
	ShortSpread = 25 * time.Millisecond
	// HeadStart is for how long a successor has a vacancy to itself: the one that a renewal names, and each that a release names but for the
	// first, whose time the release says. By then the others have seen that successor win, unless it is gone.
	HeadStart = 25 * time.Millisecond
	// firstRetryDelay times a power of two is how long after an attempt that failed the key is read again.
	firstRetryDelay = 10 * time.Millisecond
	// maxRetries is how many attempts over one vacancy may fail before it is left to an ordinary campaign.
	maxRetries = 5
)

// turn is when this candidate is to answer a vacancy.
type turn struct {
	vacancy     vacancy
	afterExpiry time.Duration // a random part of the spread, by which this candidate answers a renewal that did not come
	retries     int           // attempts in a row over one vacancy that failed
	pending     bool          // the next read is to answer a vacancy that was read; its marker may have expired by then
	takeover    time.Time     // not before this, a key whose holder's lease has lapsed is taken over
}

// vacancy is a vacancy that became known, from which each candidate counts when it is to answer.
type vacancy struct {
	revision uint64
	from     time.Time
	delay    time.Duration
}

// wasHolder reports whether the last holder was this candidate, which then leaves the key to others until its next campaign is due.
func (c *Candidate) wasHolder(s *record.State) bool {
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return predecessor.Instance == c.Instance
}

// answerAt returns when it is this candidate's turn to take the key, which was read to be vacant.
func (c *Candidate) answerAt(now time.Time, s *record.State) time.Time {
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return c.turnOf(now, s.Revision, &predecessor)
}

// turnOf returns when it is this candidate's turn to take the key over the vacancy of the given revision, counted from when the vacancy
// was first known.
func (c *Candidate) turnOf(now time.Time, revision uint64, predecessor *record.Record) time.Time {
	v := &c.turn.vacancy
	if v.revision != revision || v.from.IsZero() {
		*v = vacancy{revision, now, c.answerDelay(predecessor)}
	}
	return v.from.Add(v.delay)
}

// answerDelay returns how long after it became known this candidate answers a vacancy. The successors that a release names come first, in
// their order, and after anything else the one that the last renewal names. All others spread their answers at random, and each priority
// that is known has its part of the spread, the highest the earliest: VRRP's skew time is the model (RFC 5798).
func (c *Candidate) answerDelay(predecessor *record.Record) (delay time.Duration) {
	spread := c.bucket.Spread()
	switch _, released := predecessor.IsRelease(); {
	case released:
		place, named := predecessor.Place(c.Name, c.Instance)
		if place > 0 {
			delay = cmp.Or(predecessor.HeadStart(), HeadStart) + time.Duration(place-1)*HeadStart
		}
		if named {
			return delay
		}
		spread = min(spread, ShortSpread)
	case predecessor.Successor == c.Instance:
		return 0
	case predecessor.Successor != "":
		delay = HeadStart
		spread -= delay
	}
	higher := c.higherThanOwn(predecessor)
	part := spread / time.Duration(max(len(predecessor.Priorities), higher+1)) // the predecessor need not have seen this candidate's priority
	return delay + time.Duration(higher)*part + c.Random(part)
}

// yieldsTo reports whether this candidate waits for its turn even if its campaign is due: a release names others that come before it, or
// the last holder saw candidates of a higher priority.
func (c *Candidate) yieldsTo(s *record.State) bool {
	place, _ := s.Record.Place(c.Name, c.Instance)
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return place > 0 || c.higherThanOwn(&predecessor) > 0
}

// higherThanOwn returns how many of the priorities that the last holder saw are higher than this candidate's.
func (c *Candidate) higherThanOwn(predecessor *record.Record) (n int) {
	for _, p := range predecessor.Priorities {
		if p > c.Priority {
			n++
		}
	}
	return n
}

// answerFailed is called when an attempt over a vacancy failed, because no answer came or because another write was in the way. The key
// is read again soon, some times over, and then left to an ordinary campaign.
func (c *Candidate) answerFailed(now time.Time) {
	if c.turn.retries++; c.turn.retries >= maxRetries {
		return
	}
	delay := firstRetryDelay << c.turn.retries
	c.answerBy(now.Add(delay + c.Random(delay)))
}

// answerBy has the key read at the given time, to answer a vacancy that was read.
func (c *Candidate) answerBy(at time.Time) {
	c.turn.pending = true
	c.hints.readBy(at)
}
