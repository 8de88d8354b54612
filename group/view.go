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
	group    *Group
	ttl      time.Duration
	planner  bool                // the watcher in use delivers all presences and the plan; if not, only announcements and this member's own presence
	begun    time.Time           // when the watcher in use was started
	since    time.Time           // when the connection in use was made, or this run began
	complete bool                // the watcher has delivered all that was stored when it was started
	members  map[string]member   // by name
	left     map[string]bool     // names of members that have left in order
	lists    map[string][]string // lists of keys, by their hashes; see lists.go
	self     presence            // of this member, as it was written last or will be next

	plan         plan      // the last plan received
	planHash     string    // of the last plan received
	planRevision uint64    // of what is stored under the key of the plan; 0 for nothing, or if it is not watched
	planReceived time.Time // when the plan was last received or written
	planChanged  time.Time // when a plan with another number was last received or written
	planDue      time.Time // when to write the plan next, if it still fits then

	following

	clock   reference // of the server's clock
	forgot  time.Time // when a member was last counted as gone, because it was not seen, since the watcher in use was started; zero if none was
	changed bool      // the view has changed since the loop last acted on it
}

// reference says that the server's clock showed a time when this process's showed another.
type reference struct{ server, here time.Time }

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
	v.announcedRevision, v.fetch = 0, retries{}
	if v.since.IsZero() {
		v.since = v.begun
	}
}

// completed records that all that was stored has been delivered. Members in the plan whose presence is not stored get a TTL to write it:
// after an outage, members come back one by one. But a member that was connected all the time, and only begins to plan, gives them a moment:
// theirs have expired.
func (v *view) completed() {
	v.complete, v.changed = true, true
	if !v.planner {
		return
	}
	seen := timeutil.Later(v.since, v.begun.Add(-v.ttl))
	for name, keys := range v.plan.Keys {
		if _, found := v.members[name]; !found && !v.left[name] {
			v.members[name] = member{presence: presence{Name: name, Since: v.begun.UTC().Round(0), Keys: keys}, seen: seen}
		}
	}
}

// receive takes in one entry of the bucket, unless it is older than what is known.
func (v *view) receive(entry jetstream.KeyValueEntry) {
	switch entry.Key() {
	case v.group.planKey():
		v.receivePlan(entry)
		return
	case v.group.announcementKey():
		v.receiveAnnouncement(entry)
		return
	}
	if hash, ok := strings.CutPrefix(entry.Key(), v.group.listKey("")); ok {
		v.receiveList(entry, hash)
		return
	}
	name, ok := strings.CutPrefix(entry.Key(), v.group.memberKey(""))
	known := v.members[name]
	if !ok || entry.Revision() < known.revision {
		return
	}
	p, whole := presenceIn(entry, name)
	if p.died() && known.Name != "" && p.Commitment != known.Commitment { // a release of what that member has not written
		whole = false
	}
	switch {
	case whole && p.Left:
		delete(v.members, name)
		v.left[name], v.changed = true, true
	case whole:
		p.Keys = ordered(p.Keys)
		v.changed = v.changed || p.Instance != known.Instance || p.List != known.List || !slices.Equal(p.Keys, known.Keys)
		v.members[name] = member{presence: p, revision: entry.Revision(), seen: v.seen(entry)}
		delete(v.left, name)
	case known.Name != "": // it expired, or a stranger changed it; the member counts as gone by the time it was last seen
		known.revision = entry.Revision()
		v.members[name] = known
	}
}

// seen returns when a presence that was delivered just now was seen. One that was stored when the watcher was started is as old as the server's
// clock says, but no older than the connection: whoever plans next gives a member that has crashed no more time than the last planner did.
func (v *view) seen(entry jetstream.KeyValueEntry) time.Time {
	now := time.Now()
	if v.complete || v.clock.server.IsZero() {
		return now
	}
	age := max(0, v.clock.server.Add(now.Sub(v.clock.here)).Sub(entry.Created()))
	return timeutil.Later(v.since, now.Add(-age))
}

// receivePlan takes in what is stored under the key of the plan. If that is not a plan, because it expired or a stranger changed it, the last
// plan stays in force and is written over it.
func (v *view) receivePlan(entry jetstream.KeyValueEntry) {
	p, whole := planIn(entry)
	switch {
	case entry.Revision() < v.planRevision:
	case !whole:
		v.planRevision, v.planDue = entry.Revision(), time.Now()
	default:
		v.setPlan(p, hashOf(entry.Value()), entry.Revision())
	}
}

// setPlan records the plan in force, the hash of its record, and its revision.
func (v *view) setPlan(p plan, hash string, revision uint64) {
	v.changed = v.changed || !v.plan.same(p)
	now := time.Now()
	if p.Number != v.plan.Number {
		v.planChanged = now
	}
	v.plan, v.planHash, v.planRevision, v.planReceived, v.planDue = p, hash, revision, now, now.Add(v.ttl/plansPerTTL)
}

// present returns the members that are present, the one that has been present longest first.
func (v *view) present() (present []presence) {
	for _, m := range v.members {
		if time.Now().Before(v.gone(m)) {
			present = append(present, v.listed(m.presence))
		}
	}
	slices.SortFunc(present, func(a, b presence) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return present
}

// gone returns when a member counts as gone unless it is seen again. A server may be late to expire keys, and so is this.
func (v *view) gone(m member) time.Time { return m.seen.Add(v.ttl + timing.ExpiryLateness) }

// forget drops the members that are gone.
func (r *run) forget() {
	for name, m := range r.members {
		if r.isDue(r.gone(m)) {
			delete(r.members, name)
			r.forgot, r.changed = time.Now(), true
		}
	}
}
