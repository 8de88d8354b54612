package core

import (
	"hash/maphash"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Takeover of a lapsed lease: how a crash is answered before the server expires the key.
//
// A lease counts from when its write was sent. Whoever saw that write at some instant of its own clock, in the answer to a read or in a
// notification, knows that it was sent before. Once the length of the lease has passed since, that lease is over. If the same write is
// still what is stored, and the server accepts a write over exactly its revision, then no later renewal was ever stored, and one that is under way
// will be refused. So the holder does not lead, and the winner need not stand down for it. No clock of the server matters, nor how late it expires
// keys: only that no two clocks run at speeds that differ by more than [timing.LapseTime] allows for. PaxosLease needs no more of clocks, and
// client-go times leases by the follower's clock too, without the condition on what was timed.
//
// A notification cannot lie about the time: it tells the time only of the write whose attempt it quotes, which nobody can guess who has not seen
// that write; and the key is read before it is taken over. History must be unbroken since: had the server lost a renewal that it had
// acknowledged, the holder would lead by that. So whoever may have missed something begins anew: see [Candidate.missedSome].
//
// A candidate that wrote a record with a length of its own choice over that of the holder gains nothing: the lease of whoever was overwritten
// began before that record was seen, and no shorter one than that of the default margin is believed.

// lapseTime returns how long after it was seen a write of the holder's earns a lease no more, for sure.
func (c *Candidate) lapseTime() time.Duration {
	return timing.LapseTime(c.key.sign.lease, c.bucket.TTL)
}

// mayTakeOver reports whether what this candidate knows of the holder's last write suffices to take the key over once its lease has lapsed: it is
// told of what is written, would know if it had missed something, and knows of nothing later.
func (c *Candidate) mayTakeOver() bool {
	k := &c.key
	return k.occupied && !c.isHolder() && k.sign.attempt != 0 && k.sign.lease > 0 && c.Connected && !c.Plain && c.Source() != NoSource &&
		k.removal.revision == 0 && k.highest <= k.sign.revision && c.hints.delivered <= k.sign.revision && c.hints.awaited == 0
}

// sawLastBefore reports whether the write of the known holder's that this candidate saw last was the last before what was read just now: the source, which has reported
// that very record, and reports in order, has reported nothing between, and would be known to have missed something.
func (c *Candidate) sawLastBefore(s *record.State) bool {
	k, h := &c.key, &c.hints
	return k.occupied && k.sign.attempt != 0 && k.sign.lease > 0 && c.Connected && c.Source() != NoSource &&
		h.delivered == s.Revision && h.attempt != 0 && h.attempt == hashOf(s.Record.Attempt)
}

// lapsesAt returns when the lease of the holder will have lapsed; the zero time if this candidate cannot know.
func (c *Candidate) lapsesAt(now time.Time) time.Time {
	if !c.mayTakeOver() {
		return time.Time{}
	}
	return now.Add(c.lapseTime() - leastPassed(c.key.sign.since, now))
}

// hasLapsed reports whether the lease of the holder has lapsed of whom a record was read just now.
func (c *Candidate) hasLapsed(now time.Time, s *record.State) bool {
	return s.Held() && !s.Unconditional && s.Record.Lease() > 0 && s.Record.Bucket().Equal(c.bucket.Created) &&
		c.mayTakeOver() && c.key.sign.shows(s) && leastPassed(c.key.sign.since, now) >= c.lapseTime()
}

// takeoverDue returns when this candidate is to take the key over; the zero time for never. It tries for no longer than the key should be stored: later a
// campaign is due.
func (c *Candidate) takeoverDue(now time.Time) time.Time {
	at := c.lapsesAt(now)
	if at.IsZero() || c.turn.takeover.After(c.key.sign.at.Add(c.bucket.TTL)) {
		return time.Time{}
	}
	return later(at.Add(c.takeoverDelay()), c.turn.takeover)
}

// takeoverDelay returns how long after the lease has lapsed this candidate takes the key over. As after an expiry the successor that the last renewal
// names comes first, and those of a higher priority come before others. The spread is so short that all come before the server expires the key, where
// there is room for that.
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
	predecessor := h.record()
	higher := c.higherThanOwn(&predecessor)
	part := spread / time.Duration(max(len(h.priorities), higher+1))
	random := float64(c.turn.afterExpiry) / float64(max(1, c.bucket.Spread())) // drawn once for this holder's write
	return delay + time.Duration(higher)*part + time.Duration(random*float64(part))
}

// takeOver reads the key, and writes over it if the holder's lease has lapsed.
func (c *Candidate) takeOver(now time.Time) {
	c.turn.takeover = now.Add(c.bucket.Spread()) // the next try, if this one fails
	c.followHint(now)
}

// missedSome has this candidate see the holder's write again before it times the lease by it: something may have been written meanwhile that is lost by now.
func (c *Candidate) missedSome() { c.key.sign.attempt = 0 }

// saw takes note of a write of the holder's that was read just now.
func (g *sign) saw(now time.Time, s *record.State, lease, ttl time.Duration, checked time.Time) {
	switch same := s.Revision == g.revision && !g.at.IsZero(); {
	case same && g.shows(s): // what is read again, or was notified before, says nothing new
	case same && g.attempt == 0: // it was seen before something may have been missed
		g.since = now
	default:
		g.at, g.since = later(g.at, now), now
		g.after = later(checked, s.Read.Add(-ttl)) // else it would have expired
	}
	g.revision, g.attempt, g.written, g.lease = s.Revision, hashOf(s.Record.Attempt), s.Written, lease
}

// shows reports whether what was read is that write.
func (g *sign) shows(s *record.State) bool {
	return s.Revision == g.revision && hashOf(s.Record.Attempt) == g.attempt
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
