package core

import (
	"hash/maphash"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Takeover of a lapsed lease: how a crash is answered before the server expires the key.
//
// A lease counts from when the holder sent its write. A candidate that sees the write, in a read or in a notification, knows that the write was
// sent before that instant of its own clock. Once the length of the lease has passed since, the lease is over. If the same write is still
// stored, and the server accepts a write over exactly that revision, then no later renewal was ever stored, and a renewal that is under way
// will be refused. So the holder does not lead, and the winner need not stand down for it.
//
// The server's clock does not matter, nor how late the server expires keys. All that matters is that the speeds of two clocks differ by no more
// than [timing.LapseTime] allows for. PaxosLease needs no more of clocks. client-go also times leases by the follower's clock, but without the
// condition on the revision.
//
// A forged notification cannot make a lease seem older than it is. A notification counts only for the write whose attempt id it quotes; nobody
// who has not seen that write can guess the id; and the key is read before it is taken over.
//
// The candidate must have missed no write since it saw the one by which it times the lease: had the server lost a renewal that it had
// acknowledged, the holder would still lead by that renewal. So a candidate that may have missed something starts timing again, see
// [Candidate.missedSome].
//
// A record that states a very short lease gains its writer nothing: the lease of the holder that it overwrote began before the record was seen,
// and a stated lease that is shorter than with the default margin is not believed.

// lapseTime returns how long after this candidate saw the holder's last write the holder's lease is certainly over.
func (c *Candidate) lapseTime() time.Duration {
	return timing.LapseTime(c.key.lastWrite.lease, c.bucket.TTL)
}

// mayTakeOver reports whether this candidate knows enough of the holder's last write to take the key over once the lease has lapsed: the
// candidate is notified of writes, would know if it had missed one, and knows of no later write.
func (c *Candidate) mayTakeOver() bool {
	k := &c.key
	return k.occupied && !c.isHolder() && k.lastWrite.attempt != 0 && k.lastWrite.lease > 0 && c.Connected && !c.Plain && c.Source() != NoSource &&
		k.removal.revision == 0 && k.highest <= k.lastWrite.revision && c.hints.delivered <= k.lastWrite.revision && c.hints.awaited == 0
}

// sawLastBefore reports whether the holder wrote nothing between the write of it that this candidate saw last and the record that was read just
// now. It did not if the source of notifications, which reports in order, has reported that very record and nothing in between, and would be
// known to have missed something.
func (c *Candidate) sawLastBefore(s *record.State) bool {
	k, h := &c.key, &c.hints
	return k.occupied && k.lastWrite.attempt != 0 && k.lastWrite.lease > 0 && c.Connected && c.Source() != NoSource &&
		h.delivered == s.Revision && h.attempt != 0 && h.attempt == hashOf(s.Record.Attempt)
}

// lapsesAt returns when the holder's lease will have lapsed; the zero time if this candidate cannot know.
func (c *Candidate) lapsesAt(now time.Time) time.Time {
	if !c.mayTakeOver() {
		return time.Time{}
	}
	return now.Add(c.lapseTime() - leastPassed(c.key.lastWrite.timedFrom, now))
}

// hasLapsed reports whether the lease of a holder has lapsed whose record was read just now.
func (c *Candidate) hasLapsed(now time.Time, s *record.State) bool {
	return s.Held() && !s.Unconditional && s.Record.Lease() > 0 && s.Record.Bucket().Equal(c.bucket.Created) &&
		c.mayTakeOver() && c.key.lastWrite.shows(s) && leastPassed(c.key.lastWrite.timedFrom, now) >= c.lapseTime()
}

// takeoverDue returns when this candidate is to take the key over; the zero time for never. It makes no further try once the key should have
// expired: then an ordinary campaign is due.
func (c *Candidate) takeoverDue(now time.Time) time.Time {
	at := c.lapsesAt(now)
	if at.IsZero() || c.turn.takeover.After(c.key.lastWrite.firstSeen.Add(c.bucket.TTL)) {
		return time.Time{}
	}
	return later(at.Add(c.takeoverDelay()), c.turn.takeover)
}

// takeoverDelay returns how long after the lease has lapsed this candidate takes the key over. The order is that of answerDelay after an expiry. If
// there is room, the spread is so short that all candidates come before the server expires the key.
func (c *Candidate) takeoverDelay() (delay time.Duration) {
	h := &c.key.holder
	switch h.successor {
	case c.Instance:
		return 0
	case "":
	default:
		delay = HeadStart
	}
	spread := max(ShortSpread, min(c.bucket.TTL-c.lapseTime()-delay, c.bucket.Spread())/2)
	begin, length := c.partOf(spread, h.priorities)
	random := float64(c.turn.afterExpiry) / float64(max(1, c.bucket.Spread())) // drawn once for this holder's write
	return delay + begin + time.Duration(random*float64(length))
}

// takeOver reads the key, and writes over it if the holder's lease has lapsed.
func (c *Candidate) takeOver(now time.Time) {
	c.turn.takeover = now.Add(c.bucket.Spread()) // the next try, if this one fails
	c.followHint(now)
}

// missedSome is called when this candidate may have missed a write. It must then see the holder's write again before it times the lease by that
// write: the server may have stored a later write, and lost it.
func (c *Candidate) missedSome() { c.key.lastWrite.attempt = 0 }

// saw takes note of a write of the holder that was read just now.
func (w *holderWrite) saw(now time.Time, s *record.State, lease, ttl time.Duration, checked time.Time) {
	switch same := s.Revision == w.revision && !w.firstSeen.IsZero(); {
	case same && w.shows(s): // what is read again, or was notified before, says nothing new
	case same && w.attempt == 0: // something may have been missed since it was seen: the lease is timed anew
		w.timedFrom = now
	default:
		w.firstSeen, w.timedFrom = later(w.firstSeen, now), now
		w.writtenAfter = later(checked, s.Read.Add(-ttl)) // an older write would have expired
	}
	w.revision, w.attempt, w.written, w.lease = s.Revision, hashOf(s.Record.Attempt), s.Written, lease
}

// shows reports whether what was read is that write.
func (w *holderWrite) shows(s *record.State) bool {
	return s.Revision == w.revision && hashOf(s.Record.Attempt) == w.attempt
}

// hashOf returns a hash of the id of an attempt, which nobody outside this process can reckon with; 0 if there is none.
func hashOf(attempt string) uint64 {
	if attempt == "" {
		return 0
	}
	return max(1, maphash.String(formSeed, attempt))
}

// leastPassed returns how much time has passed for sure between two times of this process: the wall clock may have been stepped, and the
// monotonic clock stands still while a machine is suspended.
func leastPassed(from, to time.Time) time.Duration {
	return min(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
