package sim

import (
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/timing"
)

// playQuiet waits for a leader in the quiet after a round, and for the return of candidates whose connection is closed. Then
// the quiet lasts a little longer.
func (w *world) playQuiet(rest time.Duration) {
	w.quiet = true
	w.faults = nil
	began := w.Now
	if w.server.paused {
		w.server.paused = false
		w.refresh(0)
	}
	w.note("", "quiet begins")
	w.ensureCandidate()
	limit, rested := began.Add(w.leaderLimit()), false
	w.checkSoon()
	for {
		w.pass(w.script.ttl / 20)
		w.observe()
		closed := w.judge.ClosedStillRun(began, w.Now)
		led, failed := w.lastLed.After(began), w.judge.Failed()
		if e := w.server.current; !rested && e != nil && e.Write != nil && e.Write.Never { // a release, perhaps, of the quiet itself
			limit, rested = limit.Add(restLimit*w.script.longest()), true // a candidate that rests from reading cannot know what is stored
		}
		switch {
		case failed:
			return
		case led && !closed:
			w.pass(rest)
			return
		case !led && w.Now.After(limit) && w.blocked():
			return
		case !led && w.Now.After(limit):
			w.judge.Fail(w.Now, "P8", "", "nobody leads although the quiet has lasted %v", w.Now.Sub(began))
			return
		}
	}
}

// ensureCandidate starts a candidate if none runs that can come to lead.
func (w *world) ensureCandidate() {
	if slices.ContainsFunc(w.slots, (*slot).able) {
		return
	}
	for _, s := range w.slots {
		if s.current == nil || !s.current.running {
			if s.current != nil && s.current.noStatus {
				s.current = nil // this candidate can never lead
			}
			w.start(s)
			return
		}
	}
	s := w.slots[0] // all candidates are stopping, or can never lead
	if c := s.current; c.wanted {
		w.note(c.name, "is replaced")
		w.stop(c)
	}
	s.current = nil
	w.start(s)
}

const (
	restLimit     = 10                     // for how many TTLs a candidate rests from reading, after reads that failed in the trouble
	latenessLimit = 400 * time.Millisecond // how late the contract allows a server to expire a key
	answerSpread  = 50 * time.Millisecond  // for answers to a release: the head start of a successor that is gone, and the spread of all others
	spreadLimit   = time.Second            // the longest spread of the answers to any other vacancy
	retrySlack    = 100 * time.Millisecond // for an answer that conflicted with another and is repeated
)

// leaderLimit returns the longest time from the end of all trouble until a candidate leads, by what the contract says of a
// crash: one TTL in which the key expires, the lateness of the expiry, the spread of answers, the stand-down, and one
// interval because notifications may have been missed. Added to that is what trouble leaves behind: requests that hang until
// they time out, and a server clock that was set back or is slow, so that keys live longer.
func (w *world) leaderLimit() time.Duration {
	ttl := w.script.longest()
	var interval, standDown time.Duration
	for _, s := range w.slots {
		interval = max(interval, s.plan.intervalOf(ttl), min(s.plan.backoff, ttl))
		standDown = max(standDown, s.plan.standDownOf(ttl))
	}
	if w.judge.WasRemoved() || w.forgedAny || w.onlyNoRead() || w.script.beginsShort {
		// The winner may have been notified of a deletion; without reading it cannot tell that of a release. Or what a stranger stored has expired, and by
		// a slow clock that came too early.
		standDown = max(standDown, ttl)
	}
	var extra time.Duration
	if w.script.markers && w.onlyNoRead() { // they cannot create the key before the marker of its expiry is gone too
		extra = w.script.markerTTL() + latenessLimit + interval
	}
	for _, s := range w.slots {
		if s.waits() {
			extra += judge.RequestLimit(ttl) + interval
		}
	}
	slow := time.Duration(float64(ttl) * max(-w.server.rate, 0) * 1.2)
	spread := min(ttl/16, spreadLimit)
	return ttl + latenessLimit + extra + spread + standDown + interval + judge.HangingLimit(ttl) + w.server.setBack + slow + ttl/10
}

// onlyNoRead reports whether all able candidates cannot read the key.
func (w *world) onlyNoRead() bool {
	return !slices.ContainsFunc(w.slots, func(s *slot) bool { return s.able() && !s.current.noRead })
}

// blocked reports whether something is stored that never expires, and nobody can read it or learn its revision, so as to write over it.
func (w *world) blocked() bool {
	e := w.server.current
	return e != nil && e.Write != nil && e.Write.Never && w.onlyNoRead() && !w.script.named
}

// waits reports whether the slot's candidate waits for the state of the bucket, which it cannot read, before it keeps what it has won.
func (s *slot) waits() bool { return s.current != nil && s.current.running && s.current.noStatus }

// blind reports whether the slot's candidate sees no release that a deletion carries, and creates the key over it.
func (s *slot) blind() bool {
	return s.able() && !s.plan.connected && (s.plan.noWatch || s.current.noRead)
}

// tryHandover has the leader resign in the quiet if a successor will be notified: then the successor leads at once. The
// contract does not promise that soon after the bucket was recreated, because watchers of the old bucket have stalled, nor
// after a rewind, because a deposed leader's renewal may hit the release by chance. Nor does it promise that while the lease of an earlier holder
// may last whose end nothing proves to a candidate: for one lease after it has read the leader's first record.
//
// gone: the leader hands over to a candidate that crashes at once. Then the key is anybody's a moment after it was released. silent: the API of JetStream
// answers nobody meanwhile, which matters to no winner that knows the bucket.
func (w *world) tryHandover(gone, silent bool) {
	longest := w.script.longest()
	w.pass(max(3*judge.RequestLimit(longest), w.troubleEnds.Add(3*longest).Sub(w.Now))) // until no request hangs any more, and all know the leader
	w.observe()
	leader := w.leader()
	if leader == nil || w.judge.LostHistory() || leader.plan.plain || leader.plan.releaseTimeout == 0 ||
		!w.hasSuccessor(leader) || !w.allKnow(leader) || slices.ContainsFunc(w.slots, (*slot).waits) ||
		slices.ContainsFunc(w.slots, func(s *slot) bool { return s.plan.preempts }) || // it may ask the successor to hand over
		leader.plan.direct && slices.ContainsFunc(w.slots, (*slot).blind) ||
		!w.script.markers && len(w.candidates) > 2 { // the release may be gone before it is the turn of another
		return
	}
	mustAsk := func(c *candidate) bool { // it may be held back by what is over, or not know the bucket
		return c.reconnects > 0 || !c.plan.connected || c.core.Status().Holds != 0
	}
	if silent && !slices.ContainsFunc(w.candidates, mustAsk) {
		w.count(silentAPI)
		w.silent = true
		defer func() { w.silent = false }()
	}
	if gone {
		w.tryHandoverToNobody(leader)
		return
	}
	w.count("handover in the quiet")
	w.note(leader.name, "resigns in the quiet")
	w.actOnCandidate(leader, actResign)

	// The messages are a renewal that is under way, the release, its notification, a read, the acquisition, a read of the
	// bucket's state and the first renewal.
	limit := (answerSpread+2*core.HeadStart)*12/11 + 13*w.script.latency + retrySlack // by the slowest clock; the first two that the release names may be gone
	w.pass(limit)
	w.observe()
	if next := w.leader(); next == nil || next == leader {
		w.judge.Fail(w.Now, "P8", leader.name, "resigned, and %v later no other candidate leads", limit)
	}
}

// What is counted of handovers in the quiet.
const (
	silentAPI  = "handover in the quiet while the API is silent"
	targetGone = "handover in the quiet to a candidate that is gone"
)

// targetHeadStart is for how long the target of a transfer has the key to itself, and for how long the others have it then.
const targetHeadStart = 500 * time.Millisecond

// tryHandoverToNobody has the leader hand over to a candidate that crashes at once.
func (w *world) tryHandoverToNobody(leader *candidate) {
	to := w.successorOf(leader)
	if to == nil || !leader.plan.connected || leader.noRead || !w.script.markers { // the release is deleted soon, and then proves nothing
		return
	}
	w.count(targetGone)
	leader.act(func() { leader.handOver(to) })
	w.crash(to)
	limit := (2*targetHeadStart+answerSpread+2*core.HeadStart)*12/11 + 13*w.script.latency + retrySlack // by the slowest clock
	w.pass(limit)
	w.observe()
	if w.leader() == nil {
		w.judge.Fail(w.Now, "P8", leader.name, "handed over to a candidate that is gone, and %v later nobody leads", limit)
	}
}

// restarted counts starts after all candidates had stopped, over a release that lasts.
const restarted = "start over a release that lasts"

// tryRestart stops all candidates in the quiet, and starts one again after a while. Where the release lasts, that candidate leads at once, however long ago
// the release was written.
func (w *world) tryRestart(idle time.Duration) {
	w.note("", "all candidates are stopped for a while")
	for _, s := range w.slots {
		if s.current != nil {
			w.stop(s.current)
		}
	}
	for end := w.Now.Add(10 * w.script.longest()); w.anyRuns() && w.Now.Before(end); {
		w.pass(w.script.ttl / 4)
	}
	if w.anyRuns() {
		return
	}
	w.pass(idle)
	s := w.slots[int(w.script.seed%uint64(len(w.slots)))]
	e := w.server.current
	lasts := e != nil && e.Write != nil && e.Write.Never && e.Write.Deletes && e.Write.By != nil
	if lasts && s.plan.order != core.ByRank {
		w.judge.Fail(w.Now, "P8", e.Write.By.Name, "wrote a release that lasts, for a lock or a slot")
	}
	w.start(s)
	defer func() {
		for _, s := range w.slots {
			if s.current == nil || !s.current.running {
				w.start(s)
			}
		}
	}()
	c := s.current
	if !lasts || !c.plan.connected || c.noRead || c.noStatus || c.plan.plain || w.judge.LostHistory() || w.judge.WasRemoved() || w.forgedAny {
		return
	}
	w.count(restarted)
	// The messages are a request for the bucket's state, the start of a source, a read, the acquisition, and a renewal if the release names others.
	first := record.Parse(e.Value, e.Revision).HeadStart() // of one that is gone
	limit := (first+answerSpread+2*core.HeadStart)*12/11 + readyTimeout + 11*w.script.latency + retrySlack
	w.pass(limit)
	w.observe()
	if !w.lastLed.After(w.Now.Add(-limit)) {
		w.judge.Fail(w.Now, "P8", c.name, "started over a release that lasts, and %v later nobody leads", limit)
	}
}

// leader returns a candidate that leads now, or nil.
func (w *world) leader() *candidate {
	for _, c := range w.candidates {
		if !c.crashed && c.IsLeader() {
			return c
		}
	}
	return nil
}

// allKnow reports whether all other candidates that can come to lead have known the leader's term for so long that no lease before it lasts.
func (w *world) allKnow(leader *candidate) bool {
	longest := w.script.longest()
	return !slices.ContainsFunc(w.slots, func(s *slot) bool {
		c := s.current
		if c == nil || c == leader || !s.able() || c.noRead {
			return false
		}
		first := c.ledger.FirstRead(w.server.current)
		return first.IsZero() || c.clock.Between(first, w.Now) < timing.LapseTime(longest, longest, false)
	})
}

// hasSuccessor reports whether the leader holds the key and another candidate will be notified of its release.
func (w *world) hasSuccessor(leader *candidate) bool {
	if e := w.server.current; e == nil || e.Write == nil || e.Write.By != leader.ledger {
		return false
	}
	ttl := w.script.longest()
	return slices.ContainsFunc(w.slots, func(s *slot) bool {
		c := s.current
		switch {
		case c == nil || c == leader || !c.running || !c.wanted || c.noRead:
			return false
		case c.plan.hasWork && c.ledger.MayGiveUp(): // its work has returned, and Run may be about to
			return false
		case w.Now.Sub(c.ledger.LastAbandoned()) < ttl+spreadLimit: // it still leaves the key to others
			return false
		case w.Now.Sub(c.source.forgedAt) < 3*ttl+spreadLimit: // forgeries may have made it read the key less often
			return false
		}
		x := c.source
		return x.open && !x.stalled && x.last == w.server.current && c.core.Source() != core.NoSource
	})
}
