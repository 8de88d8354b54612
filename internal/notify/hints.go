package notify

import (
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// maxWrongHints is how many hints in a row may prove wrong. After that a hint causes one read per TTL, until a hint proves right or
	// none was wrong for as many TTLs.
	maxWrongHints = 3
	// lagDelay is how long after a read that was older than its hint the key is read again: nearly every replica has caught up by then. The
	// next time it is lagGrowth times that.
	lagDelay, lagGrowth = 2 * time.Millisecond, 80
	// recent is for how long after a read a notification of something older is taken for one that was in flight.
	recent = time.Second
	// learnDelay is how long after the notification of a new holder the key is read: the renewal from which its leadership counts often
	// follows at once.
	learnDelay = 2 * time.Millisecond
)

// hint is the notification that is the reason for the next read.
type hint struct {
	Change
	holder bool // it names a new holder, and the read waits for what that writes next
}

// occurred is what matters later of a notification; the zero value if none has come.
type occurred struct {
	known   bool
	removal kv.Removal
	written time.Time
}

// receive handles a notification of what was written, or of a removal. One of an earlier bucket of this name, as it may arrive across a
// leaf node, is ignored.
func (l *Listener) receive(c Change, w *written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	renewal := false
	if c.Removal == kv.Kept {
		if renewal = l.renewal != 0 && formOf(w.value) == l.renewal; renewal {
			c.Record = l.holder.record()
		} else if c.Record = w.parse(); !c.Record.BucketCreated.IsZero() && c.Record.Bucket().Before(*l.notifier.created.Load()) {
			return
		}
	}
	if l.notify(c) && !renewal {
		l.renewal = formOf(w.value)
	}
}

// notify handles a notification, and reports whether it is of a renewal by the known holder. The caller holds mu.
func (l *Listener) notify(c Change) (renewal bool) {
	now := time.Now()
	l.classify(&c, now)
	since := now
	if l.delivered == 0 { // a watcher begins with what was written before
		since = l.observed
	}
	if !l.read.IsZero() {
		l.observed = now
	}
	l.delivered = c.Revision
	if l.awaited <= c.Revision {
		l.awaited, l.overdue = 0, false
	}
	l.last = occurred{true, c.Removal, c.Written}
	l.changed.Broadcast()
	if l.Order == ByArrival {
		l.checkPlace(c, now)
	}
	if l.expected(c, now) {
		if !c.Vacant() && c.Revision > l.aliveBy { // else it is delivered again
			l.alive, l.aliveBy, l.aliveWritten, l.aliveSince = now, c.Revision, c.Written, since
			if c.Record.Instance == l.holder.instance { // only the order of answers follows from it: a mistake costs milliseconds
				l.holder.priorities, l.holder.successor = c.Record.Priorities, c.Record.Successor
			}
		}
		return !c.Vacant() && l.renewed(c.Record)
	}
	if c.Vacant() {
		l.turnOf(c.Revision, l.predecessorOf(c.Removal, c.Record), now)
	}
	l.consider(c, now)
	l.wakeToRead(now)
	return false
}

// classify finds out how a key was removed where the source does not say. The caller holds mu.
func (l *Listener) classify(c *Change, now time.Time) {
	lasted := l.last.known && c.Written.Sub(l.last.written) >= l.TTL // servers are late to expire, never early
	switch {
	case c.Removal == kv.Kept:
	case l.last.known && l.last.removal != kv.Kept && (c.Removal == kv.Expired || c.Removal == kv.RemovedOrExpired && lasted):
		c.Removal = l.last.removal // the marker of a removal has itself expired
	case c.Removal == kv.RemovedOrExpired && lasted:
		c.Removal = kv.Expired
	case c.Removal == kv.RemovedOrExpired: // a candidate that has just started cannot tell, and takes it for what needs more care
		c.Removal = kv.Removed
	}
	if c.Removal == kv.Removed {
		l.removed = event{c.Revision, now}
	}
	if c.Removal == kv.Kept {
		l.ends(c.Record)
		l.passOn(c.Record, c.Revision, now)
	}
}

// expected reports whether a notification adds nothing to what was read: it is a renewal by the holder, or older than a recent read.
// The caller holds mu.
func (l *Listener) expected(c Change, now time.Time) bool {
	if l.read.IsZero() {
		return false
	}
	if c.Revision <= l.revision && now.Sub(l.read) < recent {
		return true
	}
	return !c.Vacant() && l.renewed(c.Record)
}

// consider decides when to read the key on account of a hint. The caller holds mu.
func (l *Listener) consider(c Change, now time.Time) {
	at, holder := now, false
	switch predecessor := l.predecessorOf(c.Removal, c.Record); {
	case l.own():
	case predecessor.Instance == l.Instance:
		return // a candidate that released or lost the key waits until its next campaign is due
	case c.Vacant():
		at = l.turnOf(c.Revision, predecessor, now)
	case l.hint != nil && l.hint.holder:
		return
	default: // another candidate was quicker
		holder = true
		spread := ShortSpread
		if l.Order == ByArrival && !l.roster.announced.IsZero() { // who waits in a queue need not know soon who has the lock
			spread = max(spread, l.TTL/8)
		}
		at = now.Add(learnDelay + timeutil.Random(spread))
		if !l.readAt.IsZero() && l.hint == nil {
			at = timeutil.Earlier(at, l.readAt)
		}
		l.readAt = time.Time{}
	}
	l.hint = &hint{c, holder}
	if l.wrong >= maxWrongHints {
		at = timeutil.Later(at, l.next)
	}
	l.readBy(timeutil.Later(at, l.retry))
}

// wakeToRead wakes the candidate when the key is to be read, and not before: all candidates receive the notification of a release, and
// the one that the release names first should have the processors to itself. The caller holds mu.
func (l *Listener) wakeToRead(now time.Time) {
	switch wait := l.readAt.Sub(now); {
	case wait <= 0:
		wakeup.Send(l.Wake)
	case l.waker == nil:
		l.waker = time.AfterFunc(wait, func() { wakeup.Send(l.Wake) })
	default:
		l.waker.Reset(wait)
	}
}

// judge decides whether a hint was right, because of which nothing new was read. The caller holds mu.
func (l *Listener) judge(h *hint, s kv.State, err error) {
	if err == nil && !h.Vacant() && s.Held() && h.Record.Renews(s.Record) {
		return // the hint was right, and came too late to tell anything new
	}
	now := time.Now()
	if now.Sub(l.next) >= (maxWrongHints-1)*l.TTL { // so that as many more are no more than one per TTL
		l.wrong = 0
	}
	l.wrong++
	l.next = now.Add(l.TTL)
	again := l.next
	switch l.wrong {
	case 1:
		again = now.Add(lagDelay)
	case 2:
		again = now.Add(lagGrowth * lagDelay)
	}
	agrees := s.Removal == kv.Gone && h.Removal != kv.Kept
	lags := err == nil && !agrees && s.Revision < h.Revision && l.wrong < maxWrongHints // or the hint is forged
	unclear := err != nil
	if (lags || unclear) && l.hint == nil {
		l.hint, l.readAt = h, again
	}
	if err == nil && !lags && s.Held() {
		l.turn = turn{} // a forged vacancy may have begun it, for a revision that is yet to come
	}
}
