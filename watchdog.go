package election

import (
	"fmt"
	"time"

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

// stuck says why the loop makes no progress any more; "" while it does.
func (p progress) stuck(now time.Time) string {
	if late := now.Sub(p.due); !p.due.IsZero() && late > stuckAfter {
		return fmt.Sprintf("its loop is stuck %s: it should have been done %v ago", p.doing, late.Round(time.Millisecond))
	}
	return ""
}
