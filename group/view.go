package group

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lateness is how much longer than a TTL a member that is silent is thought to be there: as late as a server may be to
// expire its keys.
const lateness = 400 * time.Millisecond

// view is what a member has heard of its group, by one watcher after the other.
type view struct {
	group   *Group
	ttl     time.Duration
	began   time.Time           // when the watcher in use was made
	told    bool                // whether it has told all that stood
	members map[string]sighting // by name
	left    map[string]bool     // who was heard to leave
	plan    plan                // the last that was heard
	over    uint64              // its revision; 0 when no plan stands in the bucket
	planned time.Time           // when it was heard
	news    bool                // whether there is any since somebody looked
}

// sighting is a member that was heard.
type sighting struct {
	presence
	revision uint64
	heard    time.Time
}

// begin forgets what the last watcher told of who is there; the next says it again. The last plan is remembered: should it
// be gone, the next is made from it.
func (v *view) begin() {
	v.began, v.told, v.news = time.Now(), false, true
	v.members, v.left, v.over = map[string]sighting{}, map[string]bool{}, 0
}

// end takes note that all that stood was told. Whom the plan names and nobody has heard of since is given a TTL to be heard:
// after an outage, somebody comes back first.
func (v *view) end() {
	v.told, v.news = true, true
	for name, keys := range v.plan.Keys {
		if _, heard := v.members[name]; !heard && !v.left[name] {
			v.members[name] = sighting{presence: presence{Name: name, Since: v.began.UTC().Round(0), Keys: keys}, heard: v.began}
		}
	}
}

// see takes in one entry of the bucket. What is older than what is known counts for nothing.
func (v *view) see(entry jetstream.KeyValueEntry) {
	if entry.Key() == v.group.planKey() {
		v.seePlan(entry)
		return
	}
	name, ok := strings.CutPrefix(entry.Key(), v.group.memberKey(""))
	known := v.members[name]
	if !ok || entry.Revision() < known.revision {
		return
	}
	var p presence
	switch {
	case entry.Operation() == jetstream.KeyValueDelete:
		delete(v.members, name)
		v.left[name], v.news = true, true
	case entry.Operation() != jetstream.KeyValuePut: // it expired, which counts when it was long enough ago
	case json.Unmarshal(entry.Value(), &p) == nil && p.Name == name:
		p.Keys = ordered(p.Keys)
		v.news = v.news || p.Instance != known.Instance
		v.members[name] = sighting{presence: p, revision: entry.Revision(), heard: time.Now()}
		delete(v.left, name)
	}
}

func (v *view) seePlan(entry jetstream.KeyValueEntry) {
	var p plan
	switch {
	case entry.Revision() < v.over:
	case entry.Operation() != jetstream.KeyValuePut:
		v.over, v.news = 0, true
	case json.Unmarshal(entry.Value(), &p) == nil:
		for name, keys := range p.Keys {
			p.Keys[name] = ordered(keys)
		}
		v.follow(p, entry.Revision())
	}
}

// follow takes note of the plan in force.
func (v *view) follow(p plan, revision uint64) {
	v.news = v.news || !v.plan.same(p)
	v.plan, v.over, v.planned = p, revision, time.Now()
}

// there returns the members that are there, the one that has been there longest first.
func (v *view) there() []presence {
	var there []presence
	for _, m := range v.members {
		if time.Now().Before(v.until(m)) {
			there = append(there, m.presence)
		}
	}
	slices.SortFunc(there, func(a, b presence) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return there
}

// until returns when a member counts as gone unless it is heard again.
func (v *view) until(m sighting) time.Time { return m.heard.Add(v.ttl + lateness) }

// forget drops the members that are gone, and returns when the next will be.
func (v *view) forget() (next time.Time) {
	next = time.Now().Add(v.ttl)
	for name, m := range v.members {
		if until := v.until(m); !time.Now().Before(until) {
			delete(v.members, name)
			v.news = true
		} else {
			next = earlier(next, until)
		}
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
