package group

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// view is what a member knows of its group, from one watcher after the other.
type view struct {
	group        *Group
	ttl          time.Duration
	begun        time.Time         // when the watcher in use was started
	complete     bool              // the watcher has delivered all that was stored when it was started
	members      map[string]member // by name
	left         map[string]bool   // names of members that have left in order
	plan         plan              // the last plan received
	planRevision uint64            // of what is stored under the key of the plan; 0 for nothing
	planDue      time.Time         // when to write the plan next, if it still fits then
	forgot       time.Time         // when a member last counted as gone because it was not seen; zero since the watcher in use was started
	changed      bool              // since the loop has last acted on it
}

// member is a member whose presence was received.
type member struct {
	presence
	revision uint64
	seen     time.Time
}

// begin forgets the members, which the next watcher delivers again. It keeps the last plan: should that be stored no more, it is written
// again.
func (v *view) begin() {
	v.begun, v.forgot, v.complete, v.changed = time.Now(), time.Time{}, false, true
	v.members, v.left, v.planRevision, v.planDue = map[string]member{}, map[string]bool{}, 0, v.begun
}

// completed records that all that was stored has been delivered. Members in the plan whose presence is not stored get a TTL to write it:
// after an outage, members come back one by one.
func (v *view) completed() {
	v.complete, v.changed = true, true
	for name, keys := range v.plan.Keys {
		if _, seen := v.members[name]; !seen && !v.left[name] {
			v.members[name] = member{presence: presence{Name: name, Since: v.begun.UTC().Round(0), Keys: keys}, seen: v.begun}
		}
	}
}

// receive takes in one entry of the bucket, unless it is older than what is known.
func (v *view) receive(entry jetstream.KeyValueEntry) {
	if entry.Key() == v.group.planKey() {
		v.receivePlan(entry)
		return
	}
	name, ok := strings.CutPrefix(entry.Key(), v.group.memberKey(""))
	known := v.members[name]
	if !ok || entry.Revision() < known.revision {
		return
	}
	p, whole := presenceIn(entry, name)
	switch {
	case whole && p.Left:
		delete(v.members, name)
		v.left[name], v.changed = true, true
	case whole:
		p.Keys = ordered(p.Keys)
		v.changed = v.changed || p.Instance != known.Instance
		v.members[name] = member{presence: p, revision: entry.Revision(), seen: time.Now()}
		delete(v.left, name)
	case known.Name != "": // it expired, or a stranger changed it; the member counts as gone by the time it was last seen
		known.revision = entry.Revision()
		v.members[name] = known
	}
}

// receivePlan takes in what is stored under the key of the plan. If that is not a plan, because it expired or a stranger changed it, the last
// plan stays in force and is written over it.
func (v *view) receivePlan(entry jetstream.KeyValueEntry) (whole bool) {
	p, whole := planIn(entry)
	switch {
	case entry.Revision() < v.planRevision:
	case !whole:
		v.planRevision, v.planDue = entry.Revision(), time.Now()
	default:
		for name, keys := range p.Keys {
			p.Keys[name] = ordered(keys)
		}
		v.setPlan(p, entry.Revision())
	}
	return whole
}

// setPlan records the plan in force.
func (v *view) setPlan(p plan, revision uint64) {
	v.changed = v.changed || !v.plan.same(p)
	v.plan, v.planRevision, v.planDue = p, revision, time.Now().Add(v.ttl/plansPerTTL)
}

// present returns the members that are present, the one that has been present longest first.
func (v *view) present() (present []presence) {
	for _, m := range v.members {
		if time.Now().Before(v.gone(m)) {
			present = append(present, m.presence)
		}
	}
	slices.SortFunc(present, func(a, b presence) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return present
}

// gone returns when a member counts as gone unless it is seen again. A server may be late to expire keys, and so is this.
func (v *view) gone(m member) time.Time { return m.seen.Add(v.ttl + timing.ExpiryLateness) }

// forget drops the members that are gone, and returns when the next one will be.
func (v *view) forget() (next time.Time) {
	next = time.Now().Add(v.ttl)
	for name, m := range v.members {
		if gone := v.gone(m); time.Now().Before(gone) {
			next = timeutil.Earlier(next, gone)
		} else {
			delete(v.members, name)
			v.forgot, v.changed = time.Now(), true
		}
	}
	return next
}
