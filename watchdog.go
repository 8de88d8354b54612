package election

import (
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/kv"
)

const (
	// busyTime is how long the loop may be busy before it reports progress again: it makes four requests at most, and each ends.
	busyTime = 4 * kv.RequestTimeout
	// stuckAfter is by how much the loop may be late to report progress before it counts as stuck, on a host that is short of time.
	stuckAfter = 4 * kv.RequestTimeout
	// overdueAfter is for how long a lease may be over before the loop must have stood down: its requests end with the lease.
	overdueAfter = kv.RequestTimeout
)

// watchdog knows what the loop is doing, and when it means to be done: so a loop that sleeps until its next campaign, perhaps for hours,
// is distinguished from one that is stuck.
type watchdog struct{ atomic.Pointer[progress] }

// progress is what the loop does.
type progress struct {
	doing string
	due   time.Time // zero if the loop waits for somebody else
}

// expect is called when the loop begins to do something that takes until due.
func (w *watchdog) expect(doing string, due time.Time) { w.Store(&progress{doing, due}) }

// busy is called when the loop begins to do something that waits for nothing but answers of the server.
func (w *watchdog) busy(doing string) { w.expect(doing, time.Now().Add(busyTime)) }

// doing returns what the loop does; "" if it does not run.
func (w *watchdog) doing() string {
	if p := w.Load(); p != nil {
		return p.doing
	}
	return ""
}
