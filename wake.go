package election

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// expiryLateness is how late a server may be to expire a key.
	expiryLateness = 400 * time.Millisecond
	// answerSpacing is how far apart the answers to a vacancy come on average. It is about the time after which
	// everybody has seen the first of them, so that few more are made.
	answerSpacing = time.Millisecond
	// fewAnswers is how many candidates may as well answer at once.
	fewAnswers = 3
	// fairSpread is the shortest time over which answers are spread where chance decides who comes first, and not who
	// is notified of a vacancy first.
	fairSpread = 4 * time.Millisecond
	// maxSpread is the longest time over which answers are spread.
	maxSpread = time.Second
	// answerTries is how many answers are made that come to nothing, before it is left to an ordinary campaign.
	answerTries = 5
	// unknownCandidates is how many candidates are assumed where nobody counted them.
	unknownCandidates = 50
	// fallbackPoll is after how many TTLs on average a candidate campaigns though it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced: there a forged renewal may hide that the leader is gone.
	fallbackPollUnmarked = 8
	// openingCampaigns is how many campaigns a candidate makes in any case, before it relies on notifications: in the
	// course of these the leader gets to count it.
	openingCampaigns = 2
	// learnDelay is how long after the notification of a new holder the key is read: the renewal from which its leadership counts
	// often follows at once.
	learnDelay = 2 * time.Millisecond

	// wrongLooks is how many reads in a row that a notification caused may find nothing new. After that a notification
	// causes one read per TTL, until one is right again or none was wrong for as many TTLs.
	wrongLooks = 3
	// lagDelay is how long after a read that was older than the notification the key is read again; the next time, lagGrowth times that.
	lagDelay, lagGrowth = 10 * time.Millisecond, 16
	// stalledAfter is how long a source may not have told of what this process wrote or read until it counts as stalled.
	stalledAfter = time.Second
	// staleNotice is for how long after a read a notification of something older is taken for one that was on its way.
	staleNotice = time.Second
)

// change is one committed write to a key, as a notification tells it. Anybody who may publish where the bucket republishes can
// make one up, so that nothing in it is believed.
type change struct {
	revision uint64
	written  time.Time // by the server's clock
	removal  removal
	record   record // what was written, unless the key was removed
}

// vacant says whether the key may be taken after the change.
func (c *change) vacant() bool {
	_, released := c.record.released()
	return c.removal != kept || released
}

// ear is what one election knows of its key by notifications, and when it is to read the key on their account.
type ear struct {
	election *Election
	hub      *hub
	key      string
	name     string // the candidate's
	priority int    // likewise
	fair     bool   // likewise, whether chance is to decide who comes first
	ttl      time.Duration
	asked    time.Time     // when a leader was last asked to hand over, or the ear was made; belongs to the loop
	news     chan struct{} // receives after each notification that is reason to read the key, at least once

	mu          sync.Mutex
	changed     notice
	last        change    // the latest notification since the source was made; meaningless while notified is zero
	notified    time.Time // when that came
	alive       time.Time // when the holder was last known to be there, by a notification or by reading
	aliveBy     uint64    // the revision that told so
	silence     time.Duration
	known       keyState // as it was read or written last
	predecessor record   // of the last holder that was read
	lookAt      time.Time
	patient     time.Time // no read and no campaign before this
	hint        change    // the notification that is the reason for a read; meaningless while hinted is zero
	hinted      time.Time // when that came
	learning    bool      // whether that read is to wait for what a new holder writes
	wrong       int       // reads in a row that a notification caused, and that found nothing new
	nextLook    time.Time // no read on account of a notification before this
	failures    int       // reads in a row that failed
	retry       time.Time // no read on account of a notification before this, as the last read failed
	turn        turn
	tries       int           // answers in a row that came to nothing
	announced   time.Time     // when this candidate last made an attempt though somebody else held the key
	guessed     int           // how many candidates there are, unless the leader knows better; 0 for no idea
	removed     uint64        // the revision of the last removal by somebody that was notified, until a later record is read; 0 if none was
	removedAt   time.Time     // when that was notified
	owed        time.Duration // the stand-down that the last release passed on, until a later record is read

	highest   uint64    // the highest revision that was read or written in this bucket
	delivered uint64    // the revision that the source told of last, or that was read first since the source was made; 0 if none was
	awaited   uint64    // a revision that was written or read, and that the source has not told of; 0 if there is none
	since     time.Time // when that was
	overdue   bool      // whether it was reported that the source has not told of that for too long

	counting bool
	others   map[string]standing // those whose attempts were heard, by instance, while counting
}

// turn is when a vacancy was first known, from which each candidate counts when it is to answer.
type turn struct {
	revision uint64
	from     time.Time
	silence  time.Duration
}

// notify takes in a notification.
func (a *ear) notify(c change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.classify(&c)
	now := time.Now()
	a.delivered = c.revision
	if a.awaited <= c.revision {
		a.awaited, a.overdue = 0, false
	}
	a.last, a.notified = c, now
	a.changed.give()
	if a.settled(c, now) {
		if c.vacant() {
			return
		}
		if c.revision > a.aliveBy { // else it is told again
			a.alive, a.aliveBy = now, c.revision
		}
		if c.record.Instance == a.predecessor.Instance { // how many stand, and who, is told for what it is worth
			c.record.IntervalMs = a.predecessor.IntervalMs
			a.predecessor = c.record
			a.silence = a.randomSilence(c.record)
		}
		return
	}
	if c.vacant() {
		a.turnOf(c.revision, a.before(c.removal, c.record), now)
	}
	a.consider(c, now)
	signal(a.news)
}

// classify finds out by whom a key was removed where the source does not tell. The caller holds mu.
func (a *ear) classify(c *change) {
	known := !a.notified.IsZero()
	lasted := known && c.written.Sub(a.last.written) >= a.ttl // servers are late to expire, never early
	switch {
	case c.removal == kept:
	case known && a.last.removal != kept && (c.removal == expired || c.removal == removedOrExpired && lasted):
		c.removal = a.last.removal // the marker of a removal has itself expired
	case c.removal == removedOrExpired && lasted:
		c.removal = expired
	case c.removal == removedOrExpired: // a newcomer cannot tell, and takes it for what needs more care
		c.removal = removed
	}
	if c.removal == removed {
		a.removed, a.removedAt = c.revision, time.Now()
	}
	if left, released := c.record.released(); released && c.removal == kept {
		a.owed = max(a.owed, left)
	}
}

// settled says whether a notification tells nothing new: it is a renewal by the holder that was read, or older than what was
// read just now. The caller holds mu.
func (a *ear) settled(c change, now time.Time) bool {
	if a.known.read.IsZero() {
		return false
	}
	if c.revision <= a.known.revision && now.Sub(a.known.read) < staleNotice {
		return true
	}
	return !c.vacant() && a.known.held() && c.record.renews(a.known.record)
}

// consider decides when to read the key on account of a notification. The caller holds mu.
func (a *ear) consider(c change, now time.Time) {
	at := now
	switch {
	case a.own():
	case a.before(c.removal, c.record).Instance == a.election.instance:
		return // who released or lost the key waits until its next campaign is due
	case c.vacant():
		at = a.turnOf(c.revision, a.before(c.removal, c.record), now)
	case a.learning:
		return
	default: // somebody was quicker
		a.learning = true
		at = now.Add(learnDelay + a.randomSilence(c.record))
		if !a.lookAt.IsZero() && a.hinted.IsZero() {
			at = earlier(at, a.lookAt)
		}
		a.lookAt = time.Time{}
	}
	a.hint, a.hinted = c, now
	if a.wrong >= wrongLooks {
		at = later(at, a.nextLook)
	}
	a.lookBy(later(at, a.retry))
}

// lookBy has the key be read at the given time at the latest. The caller holds mu.
func (a *ear) lookBy(at time.Time) {
	if a.lookAt.IsZero() || at.Before(a.lookAt) {
		a.lookAt = at
	}
}

// own says whether the key is held by this candidate, as far as is known. The caller holds mu.
func (a *ear) own() bool { return a.known.held() && a.known.record.Instance == a.election.instance }

// looking takes note that the key is about to be read. It returns whether a notification of a vacancy is the reason, and a function that
// takes in what came of it.
func (a *ear) looking() (vacancy bool, done func(keyState, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	hint, hinted := a.hint, a.hinted
	a.lookAt, a.hinted, a.learning = time.Time{}, time.Time{}, false
	return !hinted.IsZero() && hint.vacant(), func(s keyState, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		before := a.known
		if err == nil {
			a.know(s)
		}
		if err != nil && !errors.Is(err, errUnclear) {
			a.readFailed(hint, hinted)
			return
		}
		a.failures, a.retry = 0, time.Time{}
		if err == nil && !s.follows(before) { // whatever was notified of it, and was not found then, was right
			a.wrong = 0
			return
		}
		if hinted.IsZero() {
			return
		}
		if err == nil && !hint.vacant() && s.held() && hint.record.renews(s.record) {
			return // the notification was true, and came too late to tell anything new
		}
		now := time.Now()
		if now.Sub(a.nextLook) >= (wrongLooks-1)*a.ttl { // so that as many more are no more than one per TTL
			a.wrong = 0
		}
		a.wrong++
		a.nextLook = now.Add(a.ttl)
		again := a.nextLook
		switch a.wrong {
		case 1:
			again = now.Add(lagDelay)
		case 2:
			again = now.Add(lagGrowth * lagDelay)
		}
		agrees := s.removal == gone && hint.removal != kept
		lags := err == nil && !agrees && s.revision < hint.revision && a.wrong < wrongLooks // or the notification is forged
		if (lags || err != nil) && a.hinted.IsZero() {                                      // the latter proves nothing
			a.hint, a.hinted, a.lookAt = hint, hinted, again
		}
		if err == nil && !lags && s.held() {
			a.turn = turn{} // which a forged vacancy may have begun, of a revision that is yet to come
		}
	}
}

// readFailed has the key be read again soon, for a hint if there is one, but not often: notifications do not cause more reads while
// these fail. A read that fails does not prove a hint wrong. The caller holds mu.
func (a *ear) readFailed(hint change, hinted time.Time) {
	if hinted.IsZero() && (a.highest == 0 || a.own()) { // it may never be readable
		return
	}
	delay := a.ttl / 8
	switch a.failures++; {
	case hinted.IsZero():
	case a.failures == 1:
		delay = lagDelay
	case a.failures == 2:
		delay = lagGrowth * lagDelay
	}
	a.retry = time.Now().Add(delay)
	if !hinted.IsZero() && a.hinted.IsZero() {
		a.hint, a.hinted = hint, hinted
	}
	a.lookAt = a.retry
}

// know takes in what was read or written. The caller holds mu.
func (a *ear) know(s keyState) {
	if !s.follows(a.known) {
		a.tries = 0
	}
	if s.held() {
		a.predecessor = s.record
		if s.revision != a.known.revision || a.alive.IsZero() {
			a.alive = later(a.alive, s.read)
		}
		a.aliveBy = s.revision
		a.silence = a.randomSilence(s.record)
	}
	if left, released := s.record.released(); released {
		a.owed = max(a.owed, left)
	}
	if s.held() && (s.revision > a.removed || s.read.Sub(a.removedAt) > staleNotice) { // how the key was removed before is of no account any more
		a.removed, a.owed = 0, 0
	}
	a.known = s
	a.highest = max(a.highest, s.revision)
	a.await(s.revision)
	if a.hint.revision <= s.revision { // it came while the key was read
		a.hinted, a.learning = time.Time{}, false
	}
}

// await takes note of a revision that the source must have told of, or tell of soon. What was read first since the source was made
// may be older than the source. The caller holds mu.
func (a *ear) await(revision uint64) {
	switch {
	case a.delivered == 0, revision < a.delivered: // the latter after the history was rewound
		a.delivered, a.awaited, a.overdue = revision, 0, false
	case revision > a.delivered && a.awaited == 0:
		a.awaited, a.since = revision, time.Now()
	}
}

// wrote takes note of a write of this candidate's own.
func (a *ear) wrote(revision uint64, r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.known = keyState{read: now, revision: revision, written: now, record: r}
	a.predecessor = r
	a.highest = max(a.highest, revision)
	if revision > a.removed {
		a.removed, a.owed = 0, 0
	}
	a.await(revision)
	if a.hinted.IsZero() || a.hint.revision <= revision { // the write has told what a read would
		a.lookAt, a.hinted, a.learning = time.Time{}, time.Time{}, false
	}
}

// forget has the candidate read the key again before it relies on what it knew.
func (a *ear) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.hinted, a.learning, a.lookAt = keyState{}, time.Time{}, false, time.Time{}
	a.wrong, a.nextLook, a.failures, a.retry = 0, time.Time{}, 0, time.Time{}
}

// checkStalled reports the source as stalled if it has not told for a while of what this process wrote or read. It returns when that
// will be so; the zero time if the source owes nothing.
func (a *ear) checkStalled() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awaited == 0 || a.hub.inUse() == sourceNone {
		return time.Time{}
	}
	if due := a.since.Add(stalledAfter); time.Now().Before(due) {
		return due
	}
	a.since, a.overdue = time.Now(), true
	signal(a.hub.deaf)
	return time.Time{}
}

// stalled says whether the source still owes what it was reported for.
func (a *ear) stalled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.overdue
}

// renewSource takes note that the source was made again, or may have missed something: the key is read within the given time.
func (a *ear) renewSource(within time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivered, a.awaited, a.overdue = 0, 0, false
	a.wrong, a.nextLook, a.failures, a.retry = 0, time.Time{}, 0, time.Time{}
	a.last, a.notified = change{}, time.Time{}
	if a.hub.inUse() != sourceNone { // without a source the campaigns find out what was missed
		a.lookBy(time.Now().Add(randomBelow(within)))
	}
	signal(a.news)
}

// randomSilence returns a random part of the time over which candidates spread what they do after a vacancy. The caller holds mu.
func (a *ear) randomSilence(predecessor record) time.Duration {
	wide := spread(cmp.Or(predecessor.Candidates, a.guessed, unknownCandidates), a.ttl)
	if a.fair {
		wide = min(max(wide, fairSpread), spread(unknownCandidates, a.ttl))
	}
	if _, released := predecessor.released(); released && wide < plainGrace {
		wide = min(wide, plainGrace/2) // the release may be deleted soon, and then proves nothing any more
	}
	return randomBelow(wide)
}

// delay returns how long after it became known a vacancy is to be answered.
func (a *ear) delay(predecessor record, silence time.Duration) time.Duration {
	if _, released := predecessor.released(); released && predecessor.Next == a.name {
		return 0
	}
	return silence + predecessor.headStart(a.name) + time.Duration(predecessor.above(a.priority))*headStart
}

// answerAt returns when it is this candidate's turn to take the key, which was read to be vacant.
func (a *ear) answerAt(s keyState) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turnOf(s.revision, a.before(s.removal, s.record), time.Now())
}

// wasOwn says whether the last that held the key was this candidate, which then leaves it to others until its next campaign is due.
func (a *ear) wasOwn(s keyState) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.before(s.removal, s.record).Instance == a.election.instance
}

// before returns the record of the holder before a vacancy: the release, or else the last that is known. The caller holds mu.
func (a *ear) before(r removal, release record) record {
	if r == kept {
		return release
	}
	return a.predecessor
}

// turnOf returns when it is this candidate's turn to take the key over the vacancy of the given revision, counted from when
// this was first known. The caller holds mu.
func (a *ear) turnOf(revision uint64, predecessor record, now time.Time) time.Time {
	if a.turn.revision != revision || a.turn.from.IsZero() {
		a.turn = turn{revision, now, a.randomSilence(predecessor)}
	}
	return a.turn.from.Add(a.delay(predecessor, a.turn.silence))
}

// lookAgain has the key be read at the given time at the latest.
func (a *ear) lookAgain(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lookBy(at)
}

// answerFailed takes note of an attempt over a vacancy that came to nothing, for want of a reply or because some other write was
// in the way. The key is read again soon, some times over, and then left to an ordinary campaign.
func (a *ear) answerFailed() {
	a.mu.Lock()
	a.tries++
	tries := a.tries
	a.mu.Unlock()
	if tries >= answerTries {
		return
	}
	pause := answerSpacing * 10 << tries
	a.lookAgain(time.Now().Add(pause + randomBelow(pause)))
}

// announces says whether a candidate that lost so many campaigns is to make its attempt though somebody else holds the key, so that
// the leader, which is notified of attempts, gets to know of it. It does at its start, and now and then.
func (a *ear) announces(lost int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.hub.inUse() == sourceNone || lost >= openingCampaigns && now.Sub(a.announced) < a.ttl*fallbackPoll/2 {
		return false
	}
	a.announced = now
	return true
}

// holdBack has the candidate neither read nor campaign before the given time.
func (a *ear) holdBack(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patient = until
}

// past returns what is known of how the key came to be free: the revision at which somebody removed it, as was notified, 0 if
// nobody did; and the stand-down that the last release passed on.
func (a *ear) past() (removed uint64, owed time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removed, a.owed
}

// watchesUnnotified says whether the source is a watcher that has told nothing of the key.
func (a *ear) watchesUnnotified() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notified.IsZero() && a.hub.js == nil && a.hub.inUse() == sourceWatch
}

// rewound says whether a revision is below one that was read or written before: the history went back, unless the read is stale.
func (a *ear) rewound(revision uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return revision < a.highest
}

// newBucket takes note that the bucket was made again, so that revisions begin anew.
func (a *ear) newBucket() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.highest = 0
}

// nextChange returns a channel that is closed at the next notification.
func (a *ear) nextChange() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed.wait()
}

// state returns what was last read or written, and the record of the last holder.
func (a *ear) state() (known keyState, predecessor record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.predecessor
}

// dueLook returns when the key is to be read on account of a notification; the zero time if there is no reason to.
func (a *ear) dueLook() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lookAt.IsZero() || a.election.unreadable.Load() {
		return time.Time{}
	}
	return later(a.lookAt, a.patient)
}

// nextCampaign returns when to campaign, which is due at the given time, unless somebody else holds the key and is there: that is
// reason to wait on for a candidate that relies on notifications, until poll, or until the key must have expired.
func (a *ear) nextCampaign(due, poll time.Time, rely bool) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rely && a.known.held() && !a.own() {
		due = later(due, earlier(poll, a.alive.Add(a.ttl+expiryLateness+a.silence)))
	}
	return later(due, a.patient)
}

// spread returns the time over which so many candidates, one of which led, spread their answers to a vacancy. What is left
// to chance is who comes first: one answerSpacing after the vacancy on average, however many they are. It is limited, for
// few of them may have survived.
func spread(candidates int, ttl time.Duration) time.Duration {
	followers, limit := candidates-1, min(ttl/4, maxSpread)
	if followers > int(limit/answerSpacing) {
		return limit
	}
	return time.Duration(max(followers-fewAnswers, 0)) * answerSpacing
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// guess takes note of how many processes watch the bucket; in each there are as many candidates, it is supposed, as in this.
func (a *ear) guess(watchers int) {
	each := len(a.hub.listeners(a.key))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guessed = watchers * each
}

// waitReady waits a moment for the first source, so that nothing is missed that happens after the key is read. The server is known to
// take the given time for an answer.
func (a *ear) waitReady(ctx context.Context, trip time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(max(readyTimeout, readyTrips*trip), maxReady))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-a.hub.settled:
	}
}

const (
	// readyTimeout is how long the first campaign waits for a source of notifications.
	readyTimeout = 100 * time.Millisecond
	// readyTrips is for how many answers of the server it waits in any case: it takes two of them, and servers hesitate.
	readyTrips = 4
	// maxReady is how long it does at most.
	maxReady = time.Second
)

// await waits for the next campaign, which is due at the given time, or for reason to read the key before. It returns when the
// campaign is due after all: later than given if something kept the candidate from campaigning meanwhile.
func (e *Election) await(ctx context.Context, due time.Time, lost int) (next time.Time, prompted bool) {
	ear, f := e.ear.Load(), e.facts.Load()
	rest := time.Duration(fallbackPoll)
	if !f.markers {
		rest = fallbackPollUnmarked
	}
	poll := time.Now().Add(f.ttl*rest/2 + randomBelow(f.ttl*rest))
	timer := time.NewTimer(0)
	defer timer.Stop()
	inspection := time.Now().Add(f.interval)
	held := false
	for ctx.Err() == nil {
		changed := e.gate.nextChange()
		open := e.gate.open()
		if open && held {
			due, held = e.afterGate(), false
		}
		rely := lost >= openingCampaigns && ear.hub.inUse() != sourceNone && !e.unreadable.Load()
		campaign, look := ear.nextCampaign(due, poll, rely), ear.dueLook()
		now := time.Now()
		at := campaign
		switch {
		case !open:
			e.beat("waiting to be let campaign", time.Time{})
			held, at = true, inspection
			if !now.Before(inspection) { // lest nobody tells that an operator has resumed the election, or that the connection was closed
				if e.gate.shut(shutByOperator) || ear.hub.inUse() == sourceNone {
					_, _ = e.inspect(ctx)
				}
				inspection = time.Now().Add(f.interval)
				continue
			}
		case !now.Before(campaign):
			return due, false
		default:
			e.beat("waiting for its next campaign", campaign)
			if ask := e.preemption(ear); !ask.IsZero() && ask.Before(at) {
				if !now.Before(ask) {
					e.preempt(ctx, ear)
					continue
				}
				at = ask
			}
		}
		if stall := ear.checkStalled(); !stall.IsZero() {
			at = earlier(at, stall)
		}
		if !look.IsZero() {
			if !now.Before(look) {
				return due, true
			}
			at = earlier(at, look)
		}
		timer.Reset(time.Until(at))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		case <-ear.news:
		}
	}
	return due, false
}
