package election

import (
	"sync"
	"time"
)

// Why a candidate does not campaign.
const (
	shutByOwner    = "paused"
	shutByOperator = "paused by an operator"
	shutByHealth   = "unhealthy"
)

// notice tells all who wait that something has changed. Its owner's mutex is held while it is used.
type notice struct{ given chan struct{} } // nil if nobody waits

// wait returns a channel that is closed when the next notice is given.
func (n *notice) wait() <-chan struct{} {
	if n.given == nil {
		n.given = make(chan struct{})
	}
	return n.given
}

// give wakes all who wait.
func (n *notice) give() {
	if n.given != nil {
		close(n.given)
		n.given = nil
	}
}

// gate keeps a candidate from campaigning for as long as somebody has a reason to. It is open at first.
type gate struct {
	mu      sync.Mutex
	reasons map[string]bool
	changed notice
}

// set shuts or opens the gate for one reason, and says whether that is new.
func (g *gate) set(reason string, shut bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reasons[reason] == shut {
		return false
	}
	if g.reasons == nil {
		g.reasons = map[string]bool{}
	}
	if g.reasons[reason] = shut; !shut {
		delete(g.reasons, reason)
	}
	g.changed.give()
	return true
}

// shut says whether the gate is shut for that reason.
func (g *gate) shut(reason string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reasons[reason]
}

// open says whether nobody keeps it shut.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.reasons) == 0
}

// nextChange returns a channel that is closed at the next change.
func (g *gate) nextChange() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed.wait()
}

// Pause keeps this candidate from campaigning until [Election.Resume]. If it leads it goes on leading. It may be called at
// any time, before Start too, and counts for all that is started later.
func (e *Election) Pause() {
	if e.gate.set(shutByOwner, true) {
		e.log.Info("Paused")
	}
}

// Resume undoes [Election.Pause].
func (e *Election) Resume() {
	if e.gate.set(shutByOwner, false) {
		e.log.Info("Resumed")
	}
}

// afterGate returns when to campaign after the gate was opened, which it may have been for many at once.
func (e *Election) afterGate() time.Time {
	return time.Now().Add(randomBelow(e.facts.Load().splay))
}
