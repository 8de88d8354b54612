package election

import (
	"sync"

	"github.com/natscampaign/election/internal/wakeup"
)

// Why a candidate does not campaign.
const (
	holdPaused           = "paused"
	holdPausedByOperator = "paused by an operator"
	holdUnhealthy        = "unhealthy"
	holdBucketUnknown    = "bucket unknown" // its info could not be loaded when the key was won: this candidate could not keep it
)

// holds keep a candidate from campaigning, each for a reason of its own.
type holds struct {
	mu      sync.Mutex
	reasons map[string]bool
	changed wakeup.Signal
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
