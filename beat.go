package election

import (
	"fmt"
	"time"
)

const (
	// busyTime is how long the loop may be busy between two beats: it makes four requests at most, and each ends.
	busyTime = 4 * maxTry
	// beatPatience is by how much it may be late for the next beat before it counts as stuck, on a host that is short of time.
	beatPatience = 4 * maxTry
	// overduePatience is for how long a lease may be over before the loop must have done something about it: its requests
	// end with the lease.
	overduePatience = maxTry
)

// beat is what the loop is doing, and when it means to be done: by this one that sleeps until its next campaign, for hours
// perhaps, is told from one that is stuck.
type beat struct {
	doing string
	due   time.Time // zero if only somebody else can tell
}

// beat notes what the loop begins to do.
func (e *Election) beat(doing string, due time.Time) { e.pulse.Store(&beat{doing, due}) }

// busy notes that the loop begins to do what does not wait for anything but answers of the server.
func (e *Election) busy(doing string) { e.beat(doing, time.Now().Add(busyTime)) }

// stuck says why the candidate will do nothing any more, or has lost its lease and goes on; it is empty while all is well.
func (e *Election) stuck() string {
	if broken := e.broken.Load(); broken != nil {
		return *broken
	}
	if !e.running.Load() {
		return ""
	}
	if t := e.tenure.Load(); t != nil && !(over(t.ended) && t.reason.voluntary()) {
		if late := t.overdue(); late > overduePatience {
			return fmt.Sprintf("the lease of term %d ran out %v ago, and it still has not stood down", t.term.Number, late.Round(time.Millisecond))
		}
	}
	if b := e.pulse.Load(); b != nil && !b.due.IsZero() {
		if late := time.Since(b.due); late > beatPatience {
			return fmt.Sprintf("its loop is stuck %s: it should have been done %v ago", b.doing, late.Round(time.Millisecond))
		}
	}
	return ""
}
