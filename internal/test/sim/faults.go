package sim

import (
	"time"

	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
)

// activeFault is a fault that has begun.
type activeFault struct {
	fault
	slot  int // or everyone
	until time.Time
}

func (a *activeFault) hits(slot int) bool { return a.slot == everyone || a.slot == slot }

// beginFault begins a fault, and ends it after its length.
func (w *world) beginFault(f *fault) {
	now := w.Now
	a := &activeFault{fault: *f, slot: f.victim, until: now.Add(f.length)}
	if f.victim == holder {
		a.slot = w.holderSlot()
	}
	w.journal.Add(judge.Event{At: now, What: f.kind.String() + " begins", D: f.length, Note: w.victimOf(a)})
	for _, s := range w.slots {
		if a.hits(s.index) {
			w.hit(s, a, now)
		}
	}
	if f.length <= 0 {
		return
	}
	w.faults = append(w.faults, a)
	w.After(f.length, func() { w.endFault(a) })
}

// hit begins the effects of a fault on a slot that do not depend on a call.
func (w *world) hit(s *slot, a *activeFault, now time.Time) {
	x := (*source)(nil)
	if s.current != nil && s.current.source.open {
		x = s.current.source
	}
	forges := a.kind == notificationForged || a.kind == notificationReplayed
	if !forges && s.current != nil { // a forgery excuses nothing
		s.current.ledger.Troubled(a.until)
	}
	switch a.kind {
	case linkCut, linkCutBuffered:
		s.cutUntil, s.buffered, s.catchesUp = timeutil.Later(s.cutUntil, a.until), a.kind == linkCutBuffered, a.chance > 0.5
		if x != nil && a.chance < 0.3 {
			x.stalled = true
		}
		w.At(s.cutUntil, func() {
			if c := s.current; c != nil && !w.Now.Before(s.cutUntil) {
				c.act(c.source.reconnected)
			}
		})
	case processFrozen:
		s.frozenUntil = timeutil.Later(s.frozenUntil, a.until)
		for _, c := range w.candidates { // also one that is stopping
			if c.slot == s {
				c.ledger.Frozen(s.frozenUntil)
			}
		}
	case watcherStalled, serverRestart:
		if x == nil {
			return
		}
		x.stalled = true
	case watcherEnded:
		if x == nil {
			return
		}
		s.current.act(x.breaks)
	case notificationForged, notificationReplayed:
		w.deceive(s, a, 0)
	default:
		return
	}
	if now.Before(a.until) {
		w.count(a.kind.String())
	}
}

func (w *world) endFault(a *activeFault) {
	for i, other := range w.faults {
		if other == a {
			w.faults = append(w.faults[:i:i], w.faults[i+1:]...)
			break
		}
	}
	w.journal.Add(judge.Event{At: w.Now, What: a.kind.String() + " ends", Note: w.victimOf(a)})
}

func (w *world) victimOf(a *activeFault) string {
	if a.slot == everyone {
		return "for everyone"
	}
	return "for " + w.slots[a.slot].plan.name
}

// holderSlot returns the slot of the candidate that holds the key, or any slot if none does.
func (w *world) holderSlot() int {
	if e := w.server.current; e != nil && e.Write != nil && e.Write.By != nil {
		for _, s := range w.slots {
			if s.current != nil && s.current.ledger == e.Write.By {
				return s.index
			}
		}
	}
	return int(virtual.Mix(w.script.seed, uint64(len(w.journal.Events))) % uint64(len(w.slots)))
}
