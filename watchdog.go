package election

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/timing"
)

// The watchdog: whether the loop makes progress, as /healthz tells.

const (
	// busyTime is how long the loop may take until it reports progress again. A request ends sooner, and so should a function of the user's.
	busyTime = 4 * timing.RequestTimeout
	// stuckAfter is how late the loop may report progress before it counts as stuck: a host may be short of processor time.
	stuckAfter = 4 * timing.RequestTimeout
	// overdueAfter is how long after the end of a lease the loop must have stood down: its requests end with the lease.
	overdueAfter = timing.RequestTimeout
)

// progress is what the loop does, and by when it should be done. It tells a loop that sleeps until its next campaign, perhaps for hours, from a loop
// that is stuck.
type progress struct {
	doing string    // "" if nothing runs
	due   time.Time // zero if the loop waits for somebody else, who may take any time
}

// expect is called when the run begins to do something that should be done by due.
func (r *run) expect(doing string, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = progress{doing, due}
}

// stuck says why the candidate makes no progress any more, or goes on although it has lost its lease; "" while all is well.
func (v *view) stuck(now time.Time) string {
	switch {
	case v.failure != "":
		return v.failure
	case !v.running:
		return ""
	}
	if t := v.term; t != nil && !(v.ended && v.why.voluntary()) {
		if late := -v.lease.Left(now, lease.SinceBoot); late > overdueAfter {
			return fmt.Sprintf("the lease of term %d ran out %v ago, and it still has not stood down", t.public.Number, late.Round(time.Millisecond))
		}
	}
	if p := v.progress; !p.due.IsZero() {
		if late := now.Sub(p.due); late > stuckAfter {
			return fmt.Sprintf("its loop is stuck %s: it should have been done %v ago", p.doing, late.Round(time.Millisecond))
		}
	}
	return ""
}
