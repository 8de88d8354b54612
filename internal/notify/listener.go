package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// maxWrongHints is how many hints in a row may prove wrong. After that a hint causes one read per TTL, until a hint proves right or
	// none was wrong for as many TTLs.
	maxWrongHints = 3
	// lagDelay is how long after a read that was older than its hint the key is read again; the next time, lagGrowth times that.
	lagDelay, lagGrowth = 10 * time.Millisecond, 16
	// stalledAfter is how long a source may have been silent about what this process wrote or read until it counts as stalled.
	stalledAfter = time.Second
	// recent is for how long after a read a notification of something older is taken for one that was in flight.
	recent = time.Second
	// learnDelay is how long after the notification of a new holder the key is read: the renewal from which its leadership counts often
	// follows at once.
	learnDelay = 2 * time.Millisecond

	// readyTimeout is how long the first campaign waits for a source of notifications.
	readyTimeout = 100 * time.Millisecond
	// readyAnswers is for how many answers of the server it waits in any case: a source takes two of them, and servers hesitate.
	readyAnswers = 4
	// maxReadyTimeout is how long it waits at most.
	maxReadyTimeout = time.Second
)

// ErrUnclear takes the place of a read that proves nothing, because it may be older than what is stored.
var ErrUnclear = errors.New("what was read may be older than what is stored")

// Config describes the candidate that listens.
type Config struct {
	Key, Name, Instance string
	Priority            int
	Order               Order
	TTL, Spread         time.Duration // see settings.Timing
	Closed              func()        // called when the connection was closed for good
	Log                 *slog.Logger
}

// Listener is what one candidate knows of its key, by notifications and by reading, and when it is to read the key again.
type Listener struct {
	Config
	notifier *Notifier
	news     chan struct{}

	mu      sync.Mutex
	changed wakeup.Signal
	last    occurred  // the latest notification from the source in use
	came    bool      // one has come from it
	renewal uint64    // the form of the renewals by the known holder; 0 if none was parsed, or nobody is known to hold the key
	readAt  time.Time // when to read the key; zero for no reason to
	hint    *hint     // nil if there is none
	wrong   int       // hints in a row that proved wrong
	next    time.Time // no read on account of a hint before this, once too many were wrong

	failures int       // reads in a row that failed
	retry    time.Time // no read on account of a hint before this, because the last read failed

	delivered uint64    // the revision that the source reported last, or that was read first from the source in use; 0 if there is none
	awaited   uint64    // a revision that was written or read, and that the source has not reported; 0 if there is none
	since     time.Time // when that was
	overdue   bool      // the source was reported as stalled, and has not reported it yet

	view
	roster roster
}

// hint is the notification that is the reason for the next read.
type hint struct {
	Change
	holder bool // it names a new holder, and the read waits for what that writes next
}

// occurred is what matters later of a notification.
type occurred struct {
	written time.Time
	removal kv.Removal
}

// News returns a channel that receives when the time of the next read or campaign may have changed.
func (l *Listener) News() <-chan struct{} { return l.news }

// NextChange returns a channel that is closed at the next notification.
func (l *Listener) NextChange() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed.Wait()
}

// Source returns the source in use; None while the source in use is stalled.
func (l *Listener) Source() string {
	if l.notifier.lost.Load() {
		return None
	}
	return l.notifier.inUse()
}

// crowd is how many keys of a bucket make a crowd.
const crowd = 64

// InCrowd reports whether many elections of this process share the bucket.
func (l *Listener) InCrowd() bool {
	n := l.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.listeners) >= crowd
}

// ConnectedAt returns when the connection was last made again; zero if it was not. What was known before may be outdated.
func (l *Listener) ConnectedAt() time.Time { return *l.notifier.connected.Load() }

// WaitReady waits a moment for the first source, so that nothing is missed that happens after the key is read. answer is how long the
// server took for its last answer.
func (l *Listener) WaitReady(ctx context.Context, answer time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(max(readyTimeout, readyAnswers*answer), maxReadyTimeout))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-l.notifier.ready:
	}
}

// InBucket reports whether the notifier takes the bucket for the one that was created at the given time.
func (l *Listener) InBucket(created time.Time) bool {
	return l.notifier.created.Load().Equal(created)
}

// Remake has the notifier ask about the bucket and start its source anew.
func (l *Listener) Remake() { wakeup.Send(l.notifier.remake) }

// receive handles a notification of what was written, or of a removal. One of an earlier bucket of this name, as it may arrive across a
// leaf node, is ignored.
func (l *Listener) receive(c Change, w *written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	renewal := false
	if c.Removal == kv.Kept {
		if renewal = l.renewal != 0 && formOf(w.value) == l.renewal; renewal {
			c.Record = l.known.Record
			c.Record.Priorities = l.predecessor.Priorities
		} else if c.Record = w.parse(); !c.Record.BucketCreated.IsZero() && c.Record.BucketCreated.Before(*l.notifier.created.Load()) {
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
	l.delivered = c.Revision
	if l.awaited <= c.Revision {
		l.awaited, l.overdue = 0, false
	}
	l.last, l.came = occurred{c.Written, c.Removal}, true
	l.changed.Broadcast()
	if l.Order == ByArrival {
		l.checkPlace(c, now)
	}
	if l.expected(c, now) {
		if !c.Vacant() && c.Revision > l.aliveBy { // else it is delivered again
			l.alive, l.aliveBy = now, c.Revision
			if c.Record.Instance == l.predecessor.Instance { // only the order of answers follows from it: a mistake costs milliseconds
				l.predecessor.Priorities = c.Record.Priorities
			}
		}
		return !c.Vacant() && l.known.Held() && c.Record.Renews(l.known.Record)
	}
	if c.Vacant() {
		l.turnOf(c.Revision, l.predecessorOf(c.Removal, c.Record), now)
	}
	l.consider(c, now)
	wakeup.Send(l.news)
	return false
}

// classify finds out how a key was removed where the source does not say. The caller holds mu.
func (l *Listener) classify(c *Change, now time.Time) {
	lasted := l.came && c.Written.Sub(l.last.written) >= l.TTL // servers are late to expire, never early
	switch {
	case c.Removal == kv.Kept:
	case l.came && l.last.removal != kv.Kept && (c.Removal == kv.Expired || c.Removal == kv.RemovedOrExpired && lasted):
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
		l.passOn(c.Record, c.Revision, now)
	}
}

// expected reports whether a notification adds nothing to what was read: it is a renewal by the holder, or older than a recent read.
// The caller holds mu.
func (l *Listener) expected(c Change, now time.Time) bool {
	if l.known.Read.IsZero() {
		return false
	}
	if c.Revision <= l.known.Revision && now.Sub(l.known.Read) < recent {
		return true
	}
	return !c.Vacant() && l.known.Held() && c.Record.Renews(l.known.Record)
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

// readBy has the key read at the given time at the latest. The caller holds mu.
func (l *Listener) readBy(at time.Time) {
	if l.readAt.IsZero() || at.Before(l.readAt) {
		l.readAt = at
	}
}

// ReadBy has the key read at the given time at the latest.
func (l *Listener) ReadBy(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy(at)
}

// ReadDue returns when the key is to be read; the zero time if there is no reason to.
func (l *Listener) ReadDue() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readAt
}

// BeginRead is called when the key is about to be read. It returns whether a notification of a vacancy is the reason, and a function
// that the caller passes the result to.
func (l *Listener) BeginRead() (vacancy bool, done func(kv.State, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hint
	l.readAt, l.hint = time.Time{}, nil
	return h != nil && h.Vacant(), func(s kv.State, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil && !errors.Is(err, ErrUnclear) {
			l.readFailed(h)
			return
		}
		before := l.known
		l.failures, l.retry = 0, time.Time{}
		if err == nil {
			l.learn(s)
		}
		switch {
		case err == nil && !s.Continues(before): // hints of it that seemed wrong, because a replica lagged, were right
			l.wrong = 0
		case h != nil:
			l.judge(h, s, err)
		}
	}
}

// readFailed has the key read again soon, for a hint if there is one, but not often: notifications do not cause more reads while these
// fail. A read that fails does not prove a hint wrong. The caller holds mu.
func (l *Listener) readFailed(h *hint) {
	if h == nil && (l.highest == 0 || l.own()) { // it may never be readable
		return
	}
	delay := l.TTL / 8
	switch l.failures++; {
	case h == nil:
	case l.failures == 1:
		delay = lagDelay
	case l.failures == 2:
		delay = lagGrowth * lagDelay
	}
	l.retry = time.Now().Add(delay)
	if h != nil && l.hint == nil {
		l.hint = h
	}
	l.readAt = l.retry
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

// Won is called when a win was acknowledged, before it is known whether this candidate can keep it: whatever has a lower revision from
// then on is of a rewound history.
func (l *Listener) Won(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest = max(l.highest, revision)
}

// Wrote is called when a write of this candidate's own was applied on which it holds the key.
func (l *Listener) Wrote(revision uint64, r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !r.Renews(l.known.Record) {
		l.renewal = 0
	}
	l.known = kv.State{Read: now, Revision: revision, Written: now, Record: r}
	l.predecessor = r
	if revision < l.highest { // the history was rewound: what was reported before does not count
		l.delivered = 0
	}
	l.highest = max(l.highest, revision)
	if revision > l.removed.revision {
		l.removed, l.released, l.inherited = event{}, event{}, 0
	}
	l.await(revision)
	if l.hint == nil || l.hint.Revision <= revision { // the write shows what a read would
		l.readAt, l.hint = time.Time{}, nil
	}
}

// Forget has the candidate read the key again before it relies on what it knew.
func (l *Listener) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.renewal, l.hint, l.readAt = kv.State{}, 0, nil, time.Now()
	l.wrong, l.next, l.failures, l.retry = 0, time.Time{}, 0, time.Time{}
}

// await expects the source to report a revision soon, if it has not. What was read first from the source in use may be older than
// the source, and a lower revision than was reported may be that of a stale read. The caller holds mu.
func (l *Listener) await(revision uint64) {
	switch {
	case l.delivered == 0:
		l.delivered, l.awaited, l.overdue = revision, 0, false
	case revision > l.delivered && l.awaited == 0:
		l.awaited, l.since = revision, time.Now()
	}
}

// CheckStalled reports the source as stalled if it has not reported what this process wrote or read. It returns when that will be so;
// the zero time if nothing is missing.
func (l *Listener) CheckStalled() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 || l.notifier.inUse() == None {
		return time.Time{}
	}
	if due := l.since.Add(stalledAfter); time.Now().Before(due) {
		return due
	}
	l.since, l.overdue = time.Now(), true
	wakeup.Send(l.notifier.stalled)
	return time.Time{}
}

// isStalled reports whether the source still has not reported that.
func (l *Listener) isStalled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overdue
}

// sourceChanged is called when a source was started, or may have missed something: the key is read within the given time.
func (l *Listener) sourceChanged(within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered, l.awaited, l.overdue = 0, 0, false
	l.wrong, l.next, l.failures, l.retry = 0, time.Time{}, 0, time.Time{}
	l.last, l.came = occurred{}, false
	if l.notifier.inUse() != None { // without a source the campaigns find out what was missed
		l.readBy(time.Now().Add(timeutil.Random(within)))
	}
	wakeup.Send(l.news)
}

// bucketReplaced is called when the bucket was made again: revisions begin anew.
func (l *Listener) bucketReplaced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest = 0
}
