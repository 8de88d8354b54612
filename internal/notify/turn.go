package notify

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
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

// turn is when a vacancy was first known, from which each candidate counts when it is to answer.
type turn struct {
	revision uint64
	from     time.Time
	delay    time.Duration
}

// IsOwnVacancy reports whether the last holder was this candidate, which then leaves the key to others until its next campaign is due.
func (l *Listener) IsOwnVacancy(s kv.State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.predecessorOf(s.Removal, s.Record).Instance == l.Instance
}

// AnswerAt returns when it is this candidate's turn to take the key, which was read to be vacant.
func (l *Listener) AnswerAt(s kv.State) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turnOf(s.Revision, l.predecessorOf(s.Removal, s.Record), time.Now())
}

// turnOf returns when it is this candidate's turn to take the key over the vacancy of the given revision, counted from when the vacancy
// was first known. The caller holds mu.
func (l *Listener) turnOf(revision uint64, predecessor record.Record, now time.Time) time.Time {
	if l.turn.revision != revision || l.turn.from.IsZero() {
		l.turn = turn{revision, now, l.delay(predecessor)}
	}
	return l.turn.from.Add(l.turn.delay)
}

// delay returns how long after it became known this candidate answers a vacancy. The successors that a release names come first, in
// their order, and after anything else the one that the last renewal names. All others spread their answers at random, and each priority
// that is known has its part of the spread, the highest the earliest: VRRP's skew time is the model (RFC 5798). The caller holds mu.
func (l *Listener) delay(predecessor record.Record) (delay time.Duration) {
	spread := l.Spread
	switch _, released := predecessor.IsRelease(); {
	case released:
		place, named := predecessor.Place(l.Name, l.Instance)
		if place > 0 {
			delay = cmp.Or(predecessor.HeadStart(), HeadStart) + time.Duration(place-1)*HeadStart
		}
		if named {
			return delay
		}
		spread = min(spread, ShortSpread)
	case predecessor.Successor == l.Instance:
		return 0
	case predecessor.Successor != "":
		delay = HeadStart
		spread -= delay
	}
	part := spread / time.Duration(max(1, len(predecessor.Priorities)))
	return delay + time.Duration(l.higher(predecessor))*part + timeutil.Random(part)
}

// Yields reports whether this candidate waits for its turn even if its campaign is due: a release names others that come before it, or
// the last holder saw candidates of a higher priority.
func (l *Listener) Yields(s kv.State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	place, _ := s.Record.Place(l.Name, l.Instance)
	return place > 0 || l.higher(l.predecessorOf(s.Removal, s.Record)) > 0
}

// higher returns how many of the priorities that the last holder saw are higher than this candidate's.
func (l *Listener) higher(predecessor record.Record) (n int) {
	for _, p := range predecessor.Priorities {
		if p > l.Priority {
			n++
		}
	}
	return n
}

// AnswerFailed is called when an attempt over a vacancy failed, because no answer came or because another write was in the way. The key
// is read again soon, some times over, and then left to an ordinary campaign.
func (l *Listener) AnswerFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retries++; l.retries >= maxRetries {
		return
	}
	delay := firstRetryDelay << l.retries
	l.readBy(time.Now().Add(delay + timeutil.Random(delay)))
}

// Outlived reports whether somebody else holds the key by a write that should have expired by now.
func (l *Listener) Outlived() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held && !l.own() && time.Since(l.alive) >= l.TTL+kv.ExpiryLateness
}

// RenewalOverdue returns when the holder's next renewal should have been notified for sure, though it may not be lost yet: half of what is
// left of the lease after the renewal was due. It is zero if this candidate holds the key, or is not notified, or was told by RenewalMissed.
func (l *Listener) RenewalOverdue() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	interval := time.Duration(l.holder.intervalMs) * time.Millisecond
	if !l.held || l.own() || interval <= 0 || interval >= l.TTL || l.missed == l.aliveBy || l.notifier.inUse() == None {
		return time.Time{}
	}
	return l.alive.Add(interval + (l.TTL-interval)/2)
}

// RenewalMissed is called when the caller has done what it does about an overdue renewal: RenewalOverdue returns zero until the next one.
func (l *Listener) RenewalMissed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = l.aliveBy
}

// NextCampaign returns when to campaign. A campaign is due at the given time, unless somebody else holds the key and is there: a
// candidate that relies on notifications then waits until poll, or until the key must have expired.
func (l *Listener) NextCampaign(due, poll time.Time, rely bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rely && l.held && !l.own() {
		due = timeutil.Later(due, timeutil.Earlier(poll, l.alive.Add(l.TTL+kv.ExpiryLateness+l.silence)))
	}
	return due
}
