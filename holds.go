package election

import (
	"sync"

	"github.com/natscampaign/election/internal/notify"
)

// Why a candidate does not campaign.
const (
	holdPaused           = "paused"
	holdPausedByOperator = "paused by an operator"
	holdUnhealthy        = "unhealthy"
)

// holds keep a candidate from campaigning, each for a reason of its own.
type holds struct {
	mu      sync.Mutex
	reasons map[string]bool
	changed notify.Signal
}

// set places or removes the hold of one reason, and reports whether that changes it.
func (h *holds) set(reason string, on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reasons[reason] == on {
		return false
	}
	if h.reasons == nil {
		h.reasons = map[string]bool{}
	}
	if h.reasons[reason] = on; !on {
		delete(h.reasons, reason)
	}
	h.changed.Broadcast()
	return true
}

// has reports whether there is a hold for that reason.
func (h *holds) has(reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[reason]
}

// none reports whether there is no hold.
func (h *holds) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reasons) == 0
}

// wait returns a channel that is closed at the next change.
func (h *holds) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed.Wait()
}

// Pause keeps this candidate from campaigning until [Election.Resume]. A leader leads on. Pause may be called at any time, before Start
// too, and holds for every later Start.
func (e *Election) Pause() {
	if e.holds.set(holdPaused, true) {
		e.log.Info("Paused")
	}
}

// Resume ends what [Election.Pause] began.
func (e *Election) Resume() {
	if e.holds.set(holdPaused, false) {
		e.log.Info("Resumed")
	}
}

// setPaused takes note of whether an operator has paused the election.
func (e *Election) setPaused(paused bool) {
	if !e.holds.set(holdPausedByOperator, paused) {
		return
	}
	if paused {
		e.log.Info("Election paused by an operator")
	} else {
		e.log.Info("Election resumed by an operator")
	}
}
