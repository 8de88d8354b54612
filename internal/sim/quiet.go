package sim

import (
	"slices"
	"testing/synctest"
	"time"
)

// calm waits for a leader in the quiet after a round, and until everybody has returned whose connection is closed, and a little
// longer.
func (w *world) calm(rest time.Duration) {
	w.mu.Lock()
	w.quiet = true
	w.active = nil
	began := time.Now()
	w.note("", "quiet begins")
	w.ensureSomebody()
	limit := began.Add(w.patience())
	w.probeSoon()
	w.mu.Unlock()
	for {
		time.Sleep(w.script.ttl / 20)
		w.mu.Lock()
		w.observe()
		closed := w.judge.unreturned(began, time.Now())
		led, failed := w.lastLed.After(began), len(w.judge.failures) > 0
		w.mu.Unlock()
		switch {
		case failed:
			return
		case led && !closed:
			time.Sleep(rest)
			return
		case !led && time.Now().After(limit):
			w.mu.Lock()
			w.judge.fail(time.Now(), "P8", "", "nobody leads though the quiet has lasted %v", time.Since(began))
			w.mu.Unlock()
			return
		}
	}
}

// ensureSomebody starts a candidate if none runs that can come to lead.
func (w *world) ensureSomebody() {
	if slices.ContainsFunc(w.slots, (*slot).able) {
		return
	}
	for _, s := range w.slots {
		if s.now == nil || !s.now.running {
			if s.now != nil && s.now.lost {
				s.now = nil // that one can never lead
			}
			w.start(s)
			return
		}
	}
	if c := w.slots[0].now; c.wanted {
		w.note(c.name, "is replaced")
		w.stop(c)
	}
	w.slots[0].now = nil // all others are winding up, or can never lead
	w.start(w.slots[0])
}

// latenessLimit is how late the contract allows a server to be to expire a key.
const latenessLimit = 400 * time.Millisecond

// hangingLimit is how long requests may hang that were sent in the time of trouble.
func hangingLimit(ttl time.Duration) time.Duration {
	return max(3*min(ttl/4, 2*time.Second), 2500*time.Millisecond)
}

// patience is how long it may take from the end of all trouble until somebody leads, by what the contract says of a crash:
// one TTL in which the key expires, the lateness of that, the spread of answers, the stand-down, and one interval because
// wake-ups may have been missed. To that come what trouble leaves behind: requests that hang until their time is up, and
// a server clock that was set back or is slow, so that keys live longer.
func (w *world) patience() time.Duration {
	ttl := w.script.ttl
	var interval, standDown time.Duration
	for _, s := range w.slots {
		interval = max(interval, s.plan.intervalOf(ttl), min(s.plan.backoff, ttl))
		standDown = max(standDown, s.plan.standDownOf(ttl))
	}
	if w.judge.removals > 0 || w.deceived {
		standDown = max(standDown, ttl) // as the winner may have heard that somebody removed the key
	}
	var markers time.Duration
	if w.script.markers && w.onlyUnread() { // they cannot create the key before the marker of its expiry is gone too
		markers = w.script.markerTTL() + latenessLimit + interval
	}
	var givenBack time.Duration // wins of candidates that find that they cannot look at the bucket
	for _, s := range w.slots {
		if s.givesBack() {
			givenBack += min(ttl/4, 2*time.Second) + interval
		}
	}
	slow := time.Duration(float64(ttl) * max(-w.server.rate, 0) * 1.2)
	spread := min(ttl/4, spreadLimit)
	return ttl + latenessLimit + markers + givenBack + spread + standDown + interval + hangingLimit(ttl) + w.server.backwards + slow + ttl/10
}

// onlyUnread says whether nobody campaigns but candidates that cannot read the key.
func (w *world) onlyUnread() bool {
	return !slices.ContainsFunc(w.slots, func(s *slot) bool { return s.able() && !s.now.unread })
}

// handOver has the leader resign in the quiet, where somebody hears that: then somebody else leads at once. It is not
// promised soon after a bucket was made again: a watcher of the old one is blind, and that takes some campaigns to find out. After a
// rewind, a deposed leader's renewal may hit the release by chance.
func (w *world) handOver() {
	try := min(w.script.ttl/4, 2*time.Second)
	time.Sleep(3 * try) // until nothing hangs any more
	w.mu.Lock()
	w.observe()
	leader := w.leader()
	if leader == nil || w.judge.resets > 0 || slices.ContainsFunc(w.judge.history, mutation.rewinds) || leader.plan.plain || leader.plan.releaseTimeout == 0 || !w.heirs(leader) || slices.ContainsFunc(w.slots, (*slot).givesBack) {
		w.mu.Unlock()
		return
	}
	w.count("handover in the quiet")
	w.note(leader.name, "resigns in the quiet")
	w.order(leader, actResign)
	w.mu.Unlock()

	// Messages to and fro are a renewal that is under way, the release, its news, a read, the win, a look at the bucket and the
	// first renewal.
	limit := answerSpread + 13*w.script.latency + handoverSlack
	time.Sleep(limit)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observe()
	if next := w.leader(); next == nil || next == leader {
		w.judge.fail(time.Now(), "P8", leader.name, "has resigned in order, and %v later nobody else leads", limit)
	}
}

const (
	// answerSpread is the time over which answers to a vacancy are spread where nobody has counted the candidates.
	answerSpread = 46 * time.Millisecond
	// spreadLimit is the longest time over which answers are spread.
	spreadLimit = time.Second
	// handoverSlack is for an answer that met another, and is made again.
	handoverSlack = 100 * time.Millisecond
)

// leader returns one that leads now, nil if none does.
func (w *world) leader() *candidate {
	for _, c := range w.candidates {
		if !c.crashed && c.IsLeader() {
			return c
		}
	}
	return nil
}

// givesBack says whether the candidate of the slot may win the key and then has to give it back.
func (s *slot) givesBack() bool { return s.now != nil && s.now.running && s.now.lost }

// heirs says whether the leader has something to leave, and anybody else hears of it.
func (w *world) heirs(leader *candidate) bool {
	if e := w.server.current; e == nil || e.write == nil || e.write.by != leader.ledger {
		return false // the leader has lost the key
	}
	for _, s := range w.slots {
		c := s.now
		if c == nil || c == leader || !c.running || !c.wanted || c.unread || c.watcher == nil {
			continue
		}
		if c.plan.works && c.ledger.leaving {
			continue // its work has returned, and Run may be about to
		}
		if time.Since(c.ledger.gaveBack) < w.script.ttl+spreadLimit {
			continue
		}
		if time.Since(c.watcher.misled) < 3*w.script.ttl+spreadLimit {
			continue // it may have read the key in vain so often that it waits before it reads again
		}
		if x := c.watcher; !x.ended && !x.blind && x.heard == w.server.current && c.Status().WakeUp != "none" {
			return true
		}
	}
	return false
}
