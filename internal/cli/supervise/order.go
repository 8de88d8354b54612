//go:build linux || darwin

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/timeutil"
)

// order tells a guardian what to do. A guardian reads orders as lines of JSON; each order replaces the one before.
type order struct {
	Group  int            // process group to kill when the input ends; 0 for none
	Target int            // process, or group if negative, to send Signal to when the order is due; 0 for none
	Signal syscall.Signal //
	Slack  time.Duration  // how long after it is due the order is still in time
	Due    time.Duration  // when the order is due, by orderClock
}

// orderClock reads the clock of orders: that of the machine which counts suspension and which nobody sets. All processes share it. Where a
// seccomp filter forbids that clock, the monotonic clock serves: then only run itself, by its lease, notices a suspension.
func orderClock() time.Duration {
	if boot, ok := lease.SinceBoot(); ok {
		return boot
	}
	return host.Clock()
}

// orderAt returns o, due at the given instant. It reads the clock before it computes the remaining time, so that a suspension
// of the machine in between makes the order due too early rather than too late.
func orderAt(at time.Time, o order) order {
	now := orderClock()
	o.Due = now + timeutil.Remaining(at)
	return o
}

// remaining returns the time until the order is due.
func (o order) remaining() time.Duration { return o.Due - orderClock() }

// isDue reports whether the order has a target and its time has come.
func (o order) isDue() bool { return o.Target != 0 && o.remaining() <= 0 }

// isTooLate reports whether the order is due, and its slack is over.
func (o order) isTooLate() bool { return o.isDue() && o.remaining() <= -o.Slack }

// forDeputy returns the order that the deputy of a guardian gets. KILL does no harm if both send it; other signals are the guardian's.
func (o order) forDeputy() order {
	if o.Signal != unix.SIGKILL {
		o.Target = 0
	}
	return o
}

// sameAs reports whether both orders ask for the same at the same instant. Instants that differ by less than a millisecond
// count as the same: the deadline of a term and the clock of orders are never read simultaneously.
func (o order) sameAs(p order) bool {
	return o.Group == p.Group && o.Target == p.Target && o.Signal == p.Signal && (o.Due-p.Due).Abs() < time.Millisecond
}
