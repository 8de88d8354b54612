package session

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// turnDelay is how long a session leaves a vacancy to each session whose turn comes first.
	turnDelay = 20 * time.Millisecond
	// maxTurns bounds how many sessions one waits for.
	maxTurns = 8
	// successorDelay is how long a released claim is left to the successors that the release names.
	successorDelay = 250 * time.Millisecond
)

// vacancy says whether a claim may be taken, and from when on no earlier leader leads. It is known what is stored.
func (s *Session) vacancy(now time.Time, c *storedClaim) (ends time.Time, vacant bool) {
	switch c.kind {
	case unclaimed: // whoever led in an earlier bucket of this name had a lease when this session was opened, at most
		if s.settled {
			return now, true
		}
		return s.lapses(now, s.openedAt, 0), true
	case released:
		return s.passedOn(now, c), true
	case foreign: // the session that had it may not know yet
		return s.lapses(now, c.seen, 0), true
	}
	o := s.others[c.owner]
	if o == nil { // the claim was read before the session was opened that it names, or long after that expired
		return time.Time{}, false
	}
	switch ends = s.passedOn(now, c); {
	case o.status != open && c.revision > o.revision: // its session was over before it was stored: somebody else stored a copy, over another's claim
		return timeutil.Later(ends, s.lapses(now, c.seen, 0)), true
	case o.status == ended && o.witnessed:
		return timeutil.Later(ends, s.after(now, o.closedAt, o.settles)), true
	case o.status == ended: // it states anew for how long leaders before it may lead
		return timeutil.Later(s.after(now, c.seen, c.known), s.after(now, o.closedAt, o.settles)), true
	case o.timed.Known() && (o.status == vanished || o.status == closed && o.closedOver == o.renewal): // over the renewal that this session has timed, or it has expired
		return timeutil.Later(ends, s.lapses(now, o.timed, o.lease)), true
	case o.status == closed, o.status == vanished:
		return timeutil.Later(ends, s.lapses(now, o.closedAt, o.lease)), true
	}
	return time.Time{}, false
}

// passedOn returns until when the leaders before the owner of a claim may still lead, as the owner stated when the claim was stored.
func (s *Session) passedOn(now time.Time, c *storedClaim) time.Time {
	return s.after(now, c.seen, max(c.wait, c.known))
}

// after returns when a wait is over that somebody stated, and that began at the given moment.
func (s *Session) after(now time.Time, from lease.Moment, wait time.Duration) time.Time {
	wait = min(wait, s.longestWait())
	passed, _ := s.moment(now).Since(from)
	return now.Add(wait + timing.Ahead(wait) - passed)
}

// leadersBefore returns for how long leaders before a claim may lead, as this session knows by what was stored before. The owner states no less, unless a
// stranger wrote: it replaced a claim that was not to be replaced, or knows nothing of those whom that claim's taker had to wait for.
func (s *Session) leadersBefore(now time.Time, before, c *storedClaim, r *record.Record) time.Duration {
	switch {
	case c.isAgain(before):
	case before.kind == claimed && c.kind == released: // the owner states anew what is left of the wait that it stated
		return max(0, s.after(now, before.seen, before.known).Sub(now))
	case before.kind == claimed && r.Follows(before.commitment): // its release was not delivered, for it was replaced soon; or its owner has taken it again
	case before.kind == claimed && before.owner != s.id, before.kind == foreign:
		ends, vacant := s.vacancy(now, before)
		if !vacant {
			return s.longestWait()
		}
		return min(s.longestWait(), max(0, ends.Sub(now)))
	}
	return max(0, s.passedOn(now, before).Sub(now))
}

// longestWait is for how long a taker waits at most.
func (s *Session) longestWait() time.Duration {
	return timing.LapseTime(s.Timing.LeaseTime(), s.Timing.TTL, false)
}

// lapses returns when a lease is over that was known at the given moment, as this clock may show it that may be slewed from now on. No lease is taken to be
// shorter than this session's own, or longer than [timing.MaxTTL].
func (s *Session) lapses(now time.Time, from lease.Moment, length time.Duration) time.Time {
	passed, unslewed := s.moment(now).Since(from)
	length = min(max(length, s.Timing.LeaseTime()), timing.MaxTTL)
	left := timing.LapseTime(length, s.Timing.TTL, unslewed) - passed
	return now.Add(left + max(0, timing.Ahead(left)))
}

// moment returns the present moment.
func (s *Session) moment(now time.Time) lease.Moment { return lease.MomentOf(now, s.Slewed) }

// turn returns how many of the other open sessions have their turn before this one when something becomes vacant. The order is another one for each
// thing, so that the keys of a session that is over are spread over those that are left.
func (s *Session) turn(now time.Time, of string) (before int) {
	own, at := weight(of, s.id), s.moment(now)
	for id, o := range s.others {
		if o.isFresh(at, s.Timing.TTL) && weight(of, id) > own {
			before++
		}
	}
	return min(before, maxTurns)
}

// turnAt returns when it is this session's turn to take a key that is vacant. Those come first who need not wait for a lease after it.
func (s *Session) turnAt(now time.Time, key string, st *storedClaim, waits bool) time.Time {
	from, delay := st.seen.At, time.Duration(s.turn(now, key))*turnDelay
	if st.kind == claimed {
		o := s.others[st.owner]
		if from = timeutil.Later(from, o.overAt); waits && o.status != ended {
			delay += (maxTurns + 1) * turnDelay
		}
	}
	if st.kind == released && len(st.successors) > 0 {
		if place := s.place(st); place >= 0 {
			delay = time.Duration(place) * turnDelay
		} else {
			delay += successorDelay
		}
	}
	return from.Add(delay)
}

// place returns the place of this session among the successors that a release names; -1 if it names others, or none.
func (s *Session) place(st *storedClaim) int {
	return slices.IndexFunc(st.successors, func(to record.Successor) bool {
		return to.ID == record.QueueID(s.id) || to.ID == "" && to.Name == s.Name
	})
}

// weight is rendezvous hashing: of all sessions, that with the greatest weight for a thing comes first.
func weight(of, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(of))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(id))
	x := h.Sum64() // which depends too little on its last bytes
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// earlier returns the earlier of two times; the zero time stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
