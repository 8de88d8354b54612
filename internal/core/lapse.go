package core

import (
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Takeover of a lapsed lease: how a crash is answered before the server expires the key.
//
// A lease counts from when the holder sent its write. A candidate that sees a write, in a read or in a notification, knows that this write and all
// writes before it were sent before that instant of its own clock. Once the length of the longest lease has passed since, all these leases are over.
// If the same write is still stored, and the server accepts a write over exactly that revision, then no later write was ever stored, and a renewal that
// is under way will be refused. So nobody leads, whoever made the write, and the winner need not stand down.
//
// The server's clock does not matter, nor how late the server expires keys. All that matters is that the speeds of two clocks differ by no more
// than [timing.LapseTime] allows for. PaxosLease needs no more of clocks. client-go also times leases by the follower's clock, but without the
// condition on the revision.
//
// What a notification proves: nothing by itself. Anybody may announce any write, with any revision and any content, and make just that write later. But
// nobody knows the stamp that the server gives a write, to the nanosecond, before the server has stored the write. So the time of a notification counts
// only if the read at the takeover shows the revision and the stamp that the notification stated: then the write was stored before the notification
// came. And every notification of another write of the holder replaces what was notified before, whatever its revision: so a stamp that was guessed
// counts for nothing either, once the holder has renewed.
//
// History must not have gone back since the write was seen: had the server lost a renewal that it had acknowledged, the holder would still lead by that
// renewal. So a candidate that may have missed something starts timing again, see [Candidate.forgetTiming].
//
// A record that states a short lease gains its writer nothing: the lease of the holder that it overwrote began before the record was seen, and a stated
// lease that is shorter than with the default margin is not believed. A record that states a lease longer than the bucket has ever allowed delays
// nobody: it counts as the longest that the bucket has allowed, see [Candidate.believed]. But it may be this candidate that does not know yet how long that
// is. So it loads the bucket's info first, if it has not since that record was stored, see [Candidate.mayAllowLonger].

// holderWrite is the write of the known holder that was seen last: read, or notified. Two of its times prove that its lease has lapsed: the server's stamp,
// by which the read at the takeover shows that it was this write which was seen, and the moment from which the lease is timed.
type holderWrite struct {
	revision   uint64
	written    time.Time     // the server's stamp of the write
	lease      time.Duration // the longest lease that a record of this term states, of those that were read; 0 if none does
	timedFrom  lease.Moment  // when the write was first seen after the last time that something may have been missed; none if it was not
	read       bool          // the write was read; if not, only a notification told of it
	superseded bool          // something else than a renewal was notified since: it may be a later write

	// Two more say when the server expires the write, by this candidate's clock, and prove nothing of the lease. A gap in the notifications leaves them as they are.
	firstSeen    time.Time // a TTL and a little after this the write has expired, or never does
	writtenAfter time.Time // a TTL after this the server may expire it; before that, somebody removed it. As far as is known.
}

// slewPrecision is by how much two readings of lease.Slewed may differ though the clock was not slewed in between.
const slewPrecision = time.Millisecond

func (c *Candidate) moment(now time.Time) lease.Moment { return lease.MomentOf(now, c.Slewed) }

// leftOf returns how much is left at now of the lapse time of a lease that counts from the given moment: 0 or less once the lease is over.
func (c *Candidate) leftOf(now time.Time, from lease.Moment, lease time.Duration) time.Duration {
	passed, unslewed := c.moment(now).Since(from)
	return timing.LapseTime(lease, c.bucket.TTL, unslewed) - passed
}

// mayTakeOver reports whether this candidate knows enough of the holder's last write to take the key over once the lease has lapsed: the
// candidate is notified of writes, would know if it had missed one, and knows of no later write.
func (c *Candidate) mayTakeOver() bool {
	k := &c.key
	return k.occupied && !c.isHolder() && k.lastWrite.timedFrom.Known() && !k.lastWrite.superseded && k.lastWrite.lease > 0 && c.Connected && !c.Plain && c.Source() != NoSource &&
		k.removal.revision == 0 && k.highest <= k.lastWrite.revision && c.hints.awaited == 0
}

// TakeoverPause returns how long a candidate waits after a takeover until its leadership counts: the others read the takeover meanwhile, before a renewal
// replaces it. Only the takeover itself shows which write it replaced. A candidate that has read it can follow the new leader at once, see
// [Candidate.replacedLast]; one that has not must wait for the length of the lease that lapsed.
func (b *Bucket) TakeoverPause() time.Duration { return min(2*(learnDelay+ShortSpread), b.StandDown) }

// replacedLast reports whether the holder wrote nothing between the write of it that this candidate saw last and the record that was read just now. The
// record says which revision it replaced, and the server has checked that. A write that was only notified does not count: somebody may have announced it
// before it was made.
func (c *Candidate) replacedLast(s *record.State) bool {
	k := &c.key
	return k.occupied && k.lastWrite.read && k.lastWrite.timedFrom.Known() && k.lastWrite.lease > 0 && !s.Unconditional && s.Replaced == k.lastWrite.revision
}

// lapsesAt returns when the holder's lease will have lapsed; the zero time if this candidate cannot know.
func (c *Candidate) lapsesAt(now time.Time) time.Time {
	if !c.mayTakeOver() {
		return time.Time{}
	}
	return now.Add(c.leftOf(now, c.key.lastWrite.timedFrom, c.key.lastWrite.lease) + slewPrecision)
}

// believeLonger times the lease of the known holder by what its record states, which was read just before the bucket's info was loaded.
func (c *Candidate) believeLonger(now time.Time, s *record.State) {
	if k := &c.key; s.Held() && s.Record.SameTerm(k.holder.record()) {
		k.lastWrite.lease = max(k.lastWrite.lease, c.believed(now, &s.Record))
		k.holder.leaseMs = max(k.holder.leaseMs, record.Milliseconds(c.believed(now, &s.Record)))
	}
}

// hasLapsed reports whether the lease of a holder has lapsed whose record was read just now.
func (c *Candidate) hasLapsed(now time.Time, s *record.State) bool {
	w := &c.key.lastWrite
	return s.Held() && !c.mayAllowLonger(now, &s.Record) && !s.Unconditional && s.Record.Lease() > 0 && s.Record.Bucket().Equal(c.bucket.Created) &&
		c.mayTakeOver() && w.shows(s.Revision, s.Written) && c.leftOf(now, w.timedFrom, w.lease) <= 0
}

// outlived reports whether the key is held by a write that should have expired by now, and has not: it was stored to stay for ever, say, or the server is
// late. It is nobody's lease any more once the winner has stood down for a whole lease. That is longer than the stand-down after an expiry, so a fast clock
// must not make a candidate come before the expiry.
func (c *Candidate) outlived(now time.Time) bool {
	return c.key.occupied && !now.Before(c.expiredBy())
}

// expiredBy returns when the server has expired the holder's last write, if it ever does.
func (c *Candidate) expiredBy() time.Time {
	return c.key.lastWrite.firstSeen.Add(timing.ExpiredAfter(c.bucket.TTL))
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

// takeoverDelay returns how long after the lease has lapsed this candidate takes the key over. The order is that of bidDelay after an expiry. If
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
	w := &c.key.lastWrite
	room := c.bucket.TTL - timing.LapseTime(w.lease, c.bucket.TTL, w.timedFrom.Unslewed) - delay
	spread := max(ShortSpread, min(room, c.bucket.Spread())/2)
	begin, length := c.partOf(spread, h.priorities)
	random := float64(c.turn.afterExpiry) / float64(max(1, c.bucket.Spread())) // drawn once for this holder's write
	return delay + begin + time.Duration(random*float64(length))
}

// forgetTiming is called when this candidate may have missed a write. It must then see the holder's write again before it times the lease by that
// write: the server may have stored a later write, and lost it.
func (c *Candidate) forgetTiming() { c.key.lastWrite.timedFrom = lease.Moment{} }

// noteHolderWrite takes note of a write of the holder that was seen just now: read, or notified. after is a time after which it was made, as far as is known.
func (c *Candidate) noteHolderWrite(now time.Time, revision uint64, written, after time.Time, read bool) {
	w := &c.key.lastWrite
	if w.shows(revision, written) { // what is read again, or was notified before, says nothing new
		w.read = w.read || read
		if read && (w.superseded || !w.timedFrom.Known()) { // something may have been missed since it was seen: the lease is timed anew
			w.timedFrom, w.superseded = c.moment(now), false
		}
		return
	}
	*w = holderWrite{
		revision: revision, written: written, read: read, lease: w.lease,
		firstSeen: later(w.firstSeen, now), timedFrom: c.moment(now), writtenAfter: after,
	}
	c.key.stamped = later(c.key.stamped, written)
}

// overtook reports whether this write was notified while an older one was read. If the notification is true, this is the later write; if not, the read at
// the takeover shows so.
func (w *holderWrite) overtook(s *record.State) bool {
	return !w.read && w.revision > s.Revision && w.timedFrom.Known() && w.timedFrom.At.After(s.Read)
}

// shows reports whether this is the write that has the given revision and stamp.
func (w *holderWrite) shows(revision uint64, written time.Time) bool {
	return revision == w.revision && written.Equal(w.written) && !w.firstSeen.IsZero()
}
