package shell

import (
	"time"

	"github.com/natscampaign/election/internal/core"
)

// Call is one callback that is due.
type Call struct {
	Kind   CallKind
	State  core.State  // Campaign
	Leader *core.Event // Leader: that the holder of the key was seen
	Next   bool        // Next
}

// CallKind is the kind of a callback.
type CallKind uint8

// The kinds of callbacks. A user may have given several of a kind: they are one call.
const (
	Won      CallKind = iota + 1 // leadership counts
	Lost                         // and does not any more
	Campaign                     // a campaign or a renewal was made
	Leader                       // another leader is known
	Next                         // the candidate is the one that takes over, or is not any more
	callKinds
)

// Calls finds out which callback is due. It keeps no queue: when the driver asks for the next call, the last one having returned, what was announced is compared
// with the present state. So OnWon and OnLost alternate by construction, a slow callback only skips what is outdated, and nothing piles up.
type Calls struct {
	Has [callKinds]bool // which callbacks the user has given

	busy      bool         // a callback is running or due
	latest    *Term        // the last term whose leadership counted
	announced *Term        // the term that Won was called for and Lost was not; nil if there is none
	campaigns []core.State // that wait to be announced
	leader    *core.Event  // the leader that waits to be announced; nil if none does
	reported  leader       // that was announced last; the zero value if nobody was
	next      bool         // this candidate is the one that takes over
	prepared  bool         // Next was called with true, and not with false since
}

// maxCampaigns is how many campaigns may wait to be announced; more are dropped.
const maxCampaigns = 16

// startCalls has callbacks called, if some are due and none is being called.
func (s *Shell) startCalls(due bool) {
	if due && !s.Calls.busy {
		s.Calls.busy = true
		s.driver.StartCalls()
	}
}

// campaigned takes note of a campaign that was made in a state, and reports whether a callback may be due.
func (d *Calls) campaigned(state core.State) (due bool) {
	if !d.Has[Campaign] {
		return false
	}
	if len(d.campaigns) < maxCampaigns {
		d.campaigns = append(d.campaigns, state)
	}
	return true
}

// leaderSeen takes note of the holder of the key, unless that is a leader-elect: it is no leader yet.
func (d *Calls) leaderSeen(e *core.Event) (due bool) {
	if !d.Has[Leader] || e.Record != nil && e.Record.LeaderElect() {
		return false
	}
	d.leader = nil // a leader that waited to be announced is outdated
	if leaderOf(e) == d.reported {
		return false
	}
	seen := *e
	d.leader = &seen
	return true
}

// leader is one term of one leader; the zero value is nobody.
type leader struct {
	name, instance string
	term           uint64
}

// leaderOf returns the leader that was seen.
func leaderOf(e *core.Event) leader {
	if e.Record == nil {
		return leader{}
	}
	return leader{e.Record.Name, e.Record.Instance, e.Record.Term}
}

// nextChanged takes note of whether this candidate is the one that takes over.
func (d *Calls) nextChanged(next bool) (due bool) {
	d.next = next
	return d.Has[Next]
}

// leadership takes note of a term that has begun to lead, or no longer leads.
func (d *Calls) leadership(t *Term) (due bool) {
	if !d.Has[Won] && !d.Has[Lost] {
		return false
	}
	d.latest = t
	return true
}

// discard drops the campaigns and the leader that wait to be announced.
func (d *Calls) discard() { d.campaigns, d.leader = nil, nil }

// NextCall returns the callback to call now, the last one having returned; false if none is due.
func (s *Shell) NextCall(now time.Time) (Call, bool) {
	d := &s.Calls
	switch {
	case d.announced != nil && d.announced.Lease().State != core.Leader:
		d.announced = nil
		return Call{Kind: Lost}, true
	case d.announced == nil && d.latest != nil && d.latest.Leads(now, s.boot):
		d.announced = d.latest
		return Call{Kind: Won}, true
	case d.Has[Next] && d.next != d.prepared:
		d.prepared = d.next
		return Call{Kind: Next, Next: d.next}, true
	case d.leader != nil:
		seen := d.leader
		d.reported, d.leader = leaderOf(seen), nil
		return Call{Kind: Leader, Leader: seen}, true
	case len(d.campaigns) > 0:
		state := d.campaigns[0]
		d.campaigns = d.campaigns[1:]
		return Call{Kind: Campaign, State: state}, true
	}
	d.busy = false
	s.quietened(now)
	return Call{}, false
}
