package election

import (
	"cmp"
	"context"
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
	// fairSpread is the shortest time over which answers are spread where chance is to decide who comes first, and not who
	// hears of a vacancy first.
	fairSpread = 4 * time.Millisecond
	// maxSpread is the longest time over which answers are spread.
	maxSpread = time.Second
	// answerPatience is for how long a vacancy is answered by what was heard of it. An older one is looked at again.
	answerPatience = time.Second
	// answerTries is how many answers are made that come to nothing, before it is left to an ordinary campaign.
	answerTries = 5
	// unknownCandidates is how many are thought to stand where nobody counted.
	unknownCandidates = 50
	// netInterval is after how many TTLs on average a candidate campaigns that hears others renew.
	netInterval = 80
	// openingCampaigns is how many campaigns a candidate makes in any case, before it relies on what it hears: in the
	// course of these the leader gets to count it.
	openingCampaigns = 2
	// deafCampaigns is how many campaigns are lost in silence before a source that never spoke counts as deaf.
	deafCampaigns = 3
	// deafRenewals is how many renewals of its own in a row a leader does not hear before a source counts as deaf.
	deafRenewals = 2
)

// removal is how a key came to be free.
type removal int

const (
	kept             removal = iota // it is not: a record was written
	removed                         // by somebody
	expired                         // by the server, at the end of the TTL
	removedOrExpired                // the source does not tell
)

// change is one committed write to a key.
type change struct {
	revision uint64
	written  time.Time // by the server's clock
	removal  removal
	deleted  bool      // whether it was removed by a deletion, as by a writer that clears its release away
	replayed bool      // whether it is the state of the key at the time the source was made, written whenever
	record   record    // what was written or, if the key was removed, what had stood there
	before   uint64    // the revision of that, if the key was removed
	heard    time.Time // when it was heard
	answer   time.Time // when to answer the vacancy, if it is one
	tries    int       // how many answers came to nothing

	silence time.Duration // how much longer to wait for the next renewal than it takes the key to expire
}

// vacant says whether the key may be taken after the change.
func (c *change) vacant() bool {
	_, released := c.record.released()
	return c.removal != kept || released
}

// renews says whether nothing is new after the change but the time, and after the one before it neither.
func (c *change) renews(before change) bool {
	return !c.vacant() && !before.vacant() && c.record.Instance != "" &&
		c.record.Instance == before.record.Instance && c.record.Term == before.record.Term
}

// win returns what a candidate wins that takes the key over the change.
func (c *change) win() win {
	w := win{over: c.revision, known: c.heard, reason: reasonVacant, removed: c.removal == removed}
	left, released := c.record.released()
	if released && (c.removal == kept || c.deleted && c.revision == c.before+1) {
		// A release that was deleted at once was cleared away by its writer; later, who knows who had taken it. One that
		// came at the edge of the lease may have been wiped by its expiry.
		w.reason, w.removed, w.left, w.bucket = reasonReleased, false, left, c.record.Bucket
	}
	return w
}

// ear is what one election hears of its key.
type ear struct {
	election *Election
	hub      *hub
	key      string
	name     string // the candidate's
	priority int    // likewise
	fair     bool   // likewise, whether chance is to decide who comes first
	joined   bool   // whether the hub was there before, and may have settled
	ttl      time.Duration
	asked    time.Time     // when a leader was last asked to hand over, or the ear was made; belongs to the loop
	news     chan struct{} // receives after each change but another renewal by the same holder, at least once

	mu      sync.Mutex
	changed notice
	last    change    // the latest; meaningless while heard is zero
	heard   time.Time // when it came; zero if nothing was heard since the source was made
	patient time.Time // no campaign for want of news before this, so that those of one process do not come at once
	lost    int       // campaigns lost since the source was made without a word of it
	done    uint64    // the revision of the vacancy that need not be answered any more
	guessed int       // how many candidates stand, unless the leader knows better; 0 for no idea
	found   uint64    // the revision that a campaign last found under the key, by this source; 0 if none did
	unheard int       // renewals of its own in a row that a leader did not hear
	removed uint64    // what lastRemoval returns
	missed  uint64    // that revision, if it was written since the one found before and had not been heard; else 0

	counting bool
	others   map[string]standing // those whose attempts were heard, by instance, while counting
}

// replay takes in the state of the key as it was read, unless there is later news. A watcher may have told it already,
// but not as exactly.
func (a *ear) replay(c change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard.IsZero() || a.last.replayed && a.last.revision <= c.revision {
		c.replayed, a.heard = true, time.Time{}
		a.take(c)
	}
}

// hear takes in a change.
func (a *ear) hear(c change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(c)
}

// take is what replay and hear do. The caller holds mu.
func (a *ear) take(c change) {
	known := !a.heard.IsZero()
	lasted := known && c.written.Sub(a.last.written) >= a.ttl // servers are late to expire, never early
	switch {
	case c.removal == kept:
	case known && a.last.removal != kept && (c.removal == expired || c.removal == removedOrExpired && lasted):
		// The mark of a removal has itself expired: nothing new but its revision.
		c.removal, c.record, c.answer, c.tries = a.last.removal, a.last.record, a.last.answer, a.last.tries
	default:
		if c.removal == removedOrExpired {
			c.removal = removed
			if lasted { // who cannot tell, as a newcomer, takes it for what needs more care
				c.removal = expired
			}
		}
		if known {
			c.record = a.last.record
			if a.last.removal == kept {
				c.before = a.last.revision
			}
		}
	}
	if c.win().removed {
		a.removed = c.revision
	}
	c.heard = time.Now()
	a.heard, a.lost = c.heard, 0
	wide := spread(cmp.Or(c.record.Candidates, a.guessed, unknownCandidates), a.ttl)
	if a.fair {
		wide = min(max(wide, fairSpread), spread(unknownCandidates, a.ttl))
	}
	c.silence = randomBelow(wide)
	if c.answer.IsZero() {
		c.answer = a.heard.Add(a.delay(c))
	}
	a.changed.give()
	renewal := known && !a.last.replayed && c.renews(a.last)
	a.last = c
	if !renewal {
		signal(a.news)
	}
}

// delay returns how long after it was heard a vacancy is to be answered.
func (a *ear) delay(c change) time.Duration {
	if _, released := c.record.released(); released && c.record.Next == a.name {
		return 0
	}
	return c.silence + c.record.headStart(a.name) + time.Duration(c.record.above(a.priority))*headStart
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

// doubt forgets what was heard: changes may have been missed. A campaign is to find out, if one was waited with on that
// account, within the given time.
func (a *ear) doubt(within time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.heard.IsZero() {
		a.patient = time.Now().Add(randomBelow(within))
	}
	a.heard, a.done, a.found, a.missed, a.lost, a.unheard = time.Time{}, 0, 0, 0, 0, 0
	signal(a.news)
}

// lastRemoval returns the revision of the latest removal that somebody made, and that is no release; 0 if none was heard.
func (a *ear) lastRemoval() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removed
}

// leave says whether a release that a campaign came upon is to be left to the candidate that it names, for now. It is taken in
// as one that was heard, and so answered when that one has had its time.
func (a *ear) leave(c change) bool {
	if c.record.headStart(a.name) == 0 || a.hub.inUse() == sourceNone || !a.hub.knows(c.record.Bucket) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard.IsZero() || a.last.revision < c.revision {
		a.take(c)
	}
	return a.last.revision == c.revision && a.done != c.revision && time.Now().Before(a.last.answer)
}

// nextChange returns a channel that is closed at the next change.
func (a *ear) nextChange() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed.wait()
}

// latest returns the latest change; false if nothing was heard since the source was made.
func (a *ear) latest() (change, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, !a.heard.IsZero()
}

// next returns when the next campaign is to be made, which is due at the given time unless there is word of the key: of
// a vacancy, which is then returned, to be answered; or of a holder other than self, whose renewals are reason to wait on
// for those who rely on what they hear, until the net, or until it must have expired.
func (a *ear) next(due, net time.Time, self string, rely bool) (time.Time, *change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, now := a.last, time.Now()
	switch {
	case a.heard.IsZero():
		return later(due, a.patient), nil
	case c.vacant() && c.revision != a.done:
		at := c.answer
		if c.replayed && !rely && !a.fair && c.record.headStart(a.name) == 0 { // a newcomer finds it so: its first campaign need not wait
			at = earlier(at, due)
		}
		if c.record.Instance == self { // who let go of it, or lost it, holds back
			at = later(at, due)
		}
		if later(at, now).Sub(a.heard) > maxSpread+answerPatience {
			return due, nil // who knows what stands there by now
		}
		return at, &c
	case !c.vacant() && !c.replayed && rely && c.record.Instance != self:
		quiet := a.heard.Add(a.ttl + expiryLateness + c.silence)
		return later(due, earlier(net, quiet)), nil
	}
	return later(due, a.patient), nil
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

// answered takes note of an answer to a vacancy. One that came to nothing, for want of a reply or because some other write
// was in the way, is made again soon, unless there is other news of the key by then.
func (a *ear) answered(c *change, result outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard.IsZero() || a.last.revision != c.revision {
		return
	}
	if a.last.tries++; result == applied || a.last.tries >= answerTries {
		a.done = c.revision
		return
	}
	pause := answerSpacing * 10 << a.last.tries
	a.last.answer = time.Now().Add(pause + randomBelow(pause))
}

// refused takes note of a campaign that was lost, and reports the source deaf if many were since it was made without a
// word of the key.
func (a *ear) refused() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.heard.IsZero() {
		return
	}
	if a.lost++; a.lost >= deafCampaigns {
		a.lost = 0
		signal(a.hub.deaf)
	}
}

// read takes note of what a campaign found under the key. It reports the source deaf if what the last campaign found, which
// was written since the one before, has not been heard until now; what was found just now may be on its way.
func (a *ear) read(revision uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missed != 0 && !a.knows(a.missed) {
		signal(a.hub.deaf)
	}
	a.missed = 0
	if a.found != 0 && revision != a.found && !a.knows(revision) {
		a.missed = revision
	}
	a.found = revision
	if !a.heard.IsZero() && a.last.removal != kept && revision > a.last.revision {
		a.heard = time.Time{} // the key was written since, unheard: its removal is of no account any more
	}
}

// renewed takes note of a renewal over the given revision, which was written one interval before and must have been heard
// since. It reports the source deaf if that is not so twice in a row: a source may be new.
func (a *ear) renewed(over uint64) {
	if a.hub.inUse() == sourceNone {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.knows(over) {
		a.unheard = 0
		return
	}
	if a.unheard++; a.unheard >= deafRenewals {
		a.unheard = 0
		signal(a.hub.deaf)
	}
}

// knows says whether a write was heard, or a later one. The caller holds mu.
func (a *ear) knows(revision uint64) bool {
	return !a.heard.IsZero() && a.last.revision >= revision
}

// guess takes note of how many processes watch the bucket; in each as many stand, it is supposed, as in this.
func (a *ear) guess(watchers int) {
	each := len(a.hub.listeners(a.key))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guessed = watchers * each
}

// await waits for the next campaign, and returns the vacancy that it is to answer; nil if it is an ordinary one.
func (e *Election) await(ctx context.Context, due time.Time, lost int) *change {
	ear, f := e.ear.Load(), e.facts.Load()
	net := time.Now().Add(f.ttl*netInterval/2 + randomBelow(f.ttl*netInterval))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for ctx.Err() == nil {
		at, vacancy := ear.next(due, net, e.instance, lost >= openingCampaigns)
		if time.Until(at) <= 0 {
			return vacancy
		}
		if ask := e.preemption(ear); !ask.IsZero() && ask.Before(at) {
			if time.Until(ask) <= 0 {
				e.preempt(ctx, ear)
				continue
			}
			at = ask
		}
		e.beat("waiting for its next campaign", at)
		timer.Reset(time.Until(at))
		select {
		case <-ctx.Done():
		case <-timer.C: // there may have been renewals meanwhile
		case <-ear.news:
			e.hearOf(ear)
		}
	}
	return nil
}

// hearOf takes note of who leads by the latest change that was heard.
func (e *Election) hearOf(ear *ear) {
	switch c, ok := ear.latest(); {
	case ok && c.vacant():
		e.announcer.leads(Leader{})
	case ok:
		e.saw(c.record.leader(e.key, c.revision, c.written, ear.ttl))
	}
}
