package core

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/record"
)

// When a candidate bids for a vacancy: the candidates that the last holder named come first, one after the other, and then all others, spread at
// random so that the first one has won before most of them try.

const (
	// ShortSpread is the time over which candidates spread what costs little when some of them do it at once: the bids for a release
	// that names no successors, and the reads after a new holder was notified. It is shorter than the 50 ms for which a release is stored in a
	// bucket that candidates of Choria share.
	ShortSpread = 25 * time.Millisecond
	// HeadStart is for how long a successor has a vacancy to itself: the one that a renewal names, and the second that a release names. The release
	// itself says how long its first successor has. By then the other candidates have seen the successor win, unless it is gone.
	HeadStart = 25 * time.Millisecond
	// queueSpread is for how long the second waiter of a lock has the release to itself, then the time over which all other waiters bid, and then the
	// time over which everybody else does. In each eighth of their time as many waiters bid as in all before, so that one that is there wins before most
	// of them try.
	queueSpread = 15 * time.Millisecond
	// firstRetryDelay times a power of two is how long after an attempt that failed the key is read again.
	firstRetryDelay = 10 * time.Millisecond
	// maxRetries is how many attempts over one vacancy may fail before it is left to an ordinary campaign.
	maxRetries = 5
)

// turn is when this candidate is to bid for a vacancy.
type turn struct {
	vacancy     vacancy
	afterExpiry time.Duration // drawn at random within the spread: how long after an expiry or a lapsed lease this candidate acts
	retries     int           // attempts in a row over one vacancy that failed
	pending     bool          // the next read is to bid for a vacancy that was read before; its marker may have expired by then
	takeover    time.Time     // the key of a holder whose lease has lapsed is not taken over before this
}

// vacancy is the vacancy that this candidate learned of last.
type vacancy struct {
	revision uint64
	from     time.Time     // when this candidate learned of it
	delay    time.Duration // how long after that it is this candidate's turn
}

// wasHolder reports whether the last holder was this candidate. Then it leaves the key to others until its next campaign is due.
func (c *Candidate) wasHolder(s *record.State) bool {
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return predecessor.Instance == c.Instance
}

// bidAt returns when it is this candidate's turn to take the key, which was read to be vacant.
func (c *Candidate) bidAt(now time.Time, s *record.State) time.Time {
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return c.turnOf(now, s.Revision, &predecessor)
}

// turnOf returns when it is this candidate's turn to take the key over the vacancy of the given revision, counted from when this candidate first
// learned of the vacancy.
func (c *Candidate) turnOf(now time.Time, revision uint64, predecessor *record.Record) time.Time {
	v := &c.turn.vacancy
	if v.revision != revision || v.from.IsZero() {
		*v = vacancy{revision, now, c.bidDelay(predecessor)}
	}
	return v.from.Add(v.delay)
}

// bidDelay returns how long after it learned of a vacancy this candidate bids for it. However many candidates a release names, two have a time of their own:
// the others may be gone, or never have existed.
//
//	after a release         the first that it names              at once
//	                        the second                           after the head start of the first: 25 ms, 500 ms after a transfer, 30 ms of a lock
//	                        all others                           25 ms after that (15 ms of a lock), spread over 25 ms (15 ms); at once if it names nobody
//	                        other waiters of a lock              likewise, in their order, ever more at a time
//	after an expiry, or     the one that the last renewal names  at once
//	a removal               all others                           25 ms later if it names one, spread over TTL/16 and at most 1 s
//
// What is spread is spread at random; higher priorities have the earlier parts, see partOf.
func (c *Candidate) bidDelay(predecessor *record.Record) (delay time.Duration) {
	spread := c.bucket.Spread()
	switch _, released := predecessor.IsRelease(); {
	case released:
		place, named := predecessor.Place(c.Name, c.Instance)
		if place > 0 {
			delay = cmp.Or(predecessor.HeadStart(), HeadStart)
		}
		waiters := len(predecessor.Queue)
		switch {
		case place > 1 && waiters > 0:
			delay += queueSpread
		case place > 1:
			delay += HeadStart
		}
		switch {
		case named && place < 2:
			return delay
		case named && waiters > 0:
			first := 2 // of those that bid in the same eighth
			for ; place >= 2*first; first *= 2 {
				delay += queueSpread / 8
			}
			return delay + queueSpread/8*time.Duration(place-first)/time.Duration(first)
		case waiters > 0:
			return delay + queueSpread + c.Random(queueSpread)
		}
		spread = min(spread, ShortSpread)
	case predecessor.Successor == c.Instance:
		return 0
	case predecessor.Successor != "":
		delay = HeadStart
		spread -= delay
	}
	begin, length := c.partOf(spread, predecessor.Priorities)
	return delay + begin + c.Random(length)
}

// partOf returns which part of a spread belongs to this candidate: each of the priorities that the last holder saw has one, the highest priority
// the earliest. VRRP's skew time is the model (RFC 5798).
func (c *Candidate) partOf(spread time.Duration, priorities []int) (begin, length time.Duration) {
	higher := c.higherThanOwn(priorities)
	length = spread / time.Duration(max(len(priorities), higher+1)) // the holder need not have seen this candidate's priority
	return time.Duration(higher) * length, length
}

// yieldsTo reports whether this candidate waits for its turn even if its campaign is due: a release names others that come before it, or
// the last holder saw candidates of a higher priority.
func (c *Candidate) yieldsTo(s *record.State) bool {
	place, _ := s.Record.Place(c.Name, c.Instance)
	predecessor := c.predecessorOf(s.Removal, &s.Record)
	return place > 0 || c.higherThanOwn(predecessor.Priorities) > 0
}

// higherThanOwn returns how many of the priorities are higher than this candidate's.
func (c *Candidate) higherThanOwn(priorities []int) (n int) {
	for _, p := range priorities {
		if p > c.Priority {
			n++
		}
	}
	return n
}

// bidAgainSoon is called when an attempt to win a vacant key failed, because no answer came or another write was in flight. The key is read again
// soon, a few times, and then left to an ordinary campaign.
func (c *Candidate) bidAgainSoon(now time.Time) {
	if c.turn.retries++; c.turn.retries >= maxRetries {
		return
	}
	delay := firstRetryDelay << c.turn.retries
	c.bidBy(now.Add(delay + c.Random(delay)))
}

// bidBy has the key read at the given time, to bid for a vacancy that was read.
func (c *Candidate) bidBy(at time.Time) {
	c.turn.pending = true
	c.hints.readBy(at)
}
