package group

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// planners is how many members receive all presences: the first in the order of the plan.
	planners = 2
	// maxRank bounds how long a member waits for those that are before it.
	maxRank = 8
	// fetchDelay is how long after a plan that could not be read it is read again at first; later up to retryDelay.
	fetchDelay = 20 * time.Millisecond
)

// announcement is the record by which members that do not plan know which plan is in force, and that there is somebody who plans. It is small, and
// written again with the plan: the plan itself is read only when it has changed.
type announcement struct {
	Number   uint64 `json:"number"`             // of the plan; 0 while there is none
	Revision uint64 `json:"revision,omitempty"` // of the plan
	Plan     string `json:"plan,omitempty"`     // the hash of the plan
	By       string `json:"by"`                 // the member that wrote it
	Instance string `json:"instance"`           // of that member
}

// following is what a member knows of the announcement.
type following struct {
	announced         announcement // the last one that was received or written
	announcedRevision uint64       // of what is stored under its key; 0 for nothing
	announcedAt       time.Time    // when it was received or written
	fetch             retries      // of the plan that it announces
}

// announcementIn returns the announcement in an entry under its key.
func announcementIn(entry jetstream.KeyValueEntry) (a announcement, whole bool) {
	whole = entry.Operation() == jetstream.KeyValuePut && json.Unmarshal(entry.Value(), &a) == nil && a.By != "" && a.Number <= maxPlanNumber
	return a, whole && (a.Number == 0) == (a.Plan == "")
}

// receiveAnnouncement takes in what is stored under the key of the announcement.
func (v *view) receiveAnnouncement(entry jetstream.KeyValueEntry) {
	a, whole := announcementIn(entry)
	switch {
	case entry.Revision() < v.announcedRevision:
	case whole:
		v.setAnnouncement(a, entry.Revision())
	case entry.Operation() == jetstream.KeyValuePut:
		v.announcedRevision = entry.Revision()
	default:
		v.announcedRevision = 0 // it expired, or was deleted
	}
}

// setAnnouncement records the announcement that is stored, and its revision.
func (v *view) setAnnouncement(a announcement, revision uint64) {
	if a.Plan != v.announced.Plan {
		v.fetch = retries{}
	}
	v.announced, v.announcedRevision, v.announcedAt = a, revision, time.Now()
}

// claimed reports whether this member plans because it was the last that announced something: it has claimed to plan, or planned already.
func (v *view) claimed() bool { return v.announced.Instance == v.self.Instance }

// follow does what a member does that does not plan: it reads the plan that was announced, and begins to plan should nobody else.
func (r *run) follow(ctx context.Context) {
	if r.planner || !r.complete {
		return
	}
	if r.announced.Number > 0 && r.announced.Plan != r.planHash {
		r.fetchPlan(ctx)
	}
	if !r.ending {
		r.claim(ctx)
	}
}

// fetchPlan reads the plan that was announced, and again later if that fails. A replica may be behind.
func (r *run) fetchPlan(ctx context.Context) {
	if !r.isDue(r.fetch.due) {
		return
	}
	call, cancel := r.request(ctx)
	defer cancel()
	entry, err := r.bucket.Get(call, r.planKey())
	if err == nil {
		p, whole := planIn(entry)
		if whole && (hashOf(entry.Value()) == r.announced.Plan || entry.Revision() > r.announced.Revision) {
			r.setPlan(p, hashOf(entry.Value()), entry.Revision())
			return
		}
	} else if kv.Classify(err) != kv.Absent {
		r.warn("Plan not read", err)
	}
	r.fetch.failed(fetchDelay, retryDelay)
	r.actBy(r.fetch.due)
}

// claim has this member begin to plan if nobody does: there is neither plan nor announcement, or the next announcement is overdue, and those that are
// before this member in the order of the plan have had their time. Of many that claim at once the server lets one pass, and the others are notified
// of that: a claim keeps them from claiming, and from nothing else.
func (r *run) claim(ctx context.Context) {
	due := r.begun
	if r.plan.Number > 0 || r.announcedRevision > 0 {
		due = timeutil.Later(r.announcedAt, r.begun).Add(r.ttl/plansPerTTL + timing.ExpiryLateness + time.Duration(min(max(r.planRank(), planners), maxRank))*r.planInterval())
	}
	if !r.isDue(timeutil.Later(due, r.retryAt)) {
		return
	}
	r.retryAt = time.Now().Add(r.planInterval())
	call, cancel := r.request(ctx)
	defer cancel()
	a := r.announced
	a.By, a.Instance = r.name, r.self.Instance
	revision, err := r.writeOver(call, r.announcementKey(), encode(a), r.announcedRevision)
	switch kv.Classify(err) {
	case kv.Applied:
		r.setAnnouncement(a, revision)
		r.retryAt = time.Time{}
	case kv.Refused:
		if entry, err := r.bucket.Get(call, r.announcementKey()); err == nil {
			r.receiveAnnouncement(entry)
		} else if kv.Classify(err) == kv.Absent {
			r.announcedRevision = 0
		}
	default:
		r.warn("Claim to plan not written", err)
	}
	r.actBy(time.Now())
}

// announceIfDue announces the plan in force, if nobody has: the planners do one after the other.
func (r *run) announceIfDue(ctx context.Context, rank int) {
	if r.plan.Number == 0 || r.planRevision == 0 || r.announced.Revision == r.planRevision && r.announced.Plan == r.planHash {
		return
	}
	due := r.planReceived.Add(time.Duration(rank) * r.planInterval())
	if r.isDue(timeutil.Later(due, r.retryAt)) {
		r.announce(ctx)
	}
}

// announce announces the plan in force, and again later if that fails.
func (r *run) announce(ctx context.Context) {
	r.retryAt = time.Now().Add(r.planInterval())
	a := announcement{Number: r.plan.Number, Revision: r.planRevision, Plan: r.planHash, By: r.name, Instance: r.self.Instance}
	call, cancel := r.request(ctx)
	defer cancel()
	revision, err := r.bucket.Put(call, r.announcementKey(), encode(a))
	if err != nil {
		r.warn("Plan not announced", err)
		r.actBy(r.retryAt)
		return
	}
	r.setAnnouncement(a, revision)
	r.retryAt = time.Time{}
}

// planRank returns the place of this member in the order of the plan; that after the last if it has none.
func (v *view) planRank() int {
	if i := slices.Index(v.plan.Order, v.group.name); i >= 0 {
		return i
	}
	return len(v.plan.Order)
}

// setRole has this member receive all presences if it is one of the planners or has claimed to plan, and no longer once neither is so. A member whose
// requests are not answered keeps the watcher that it has.
func (r *run) setRole() {
	plans := r.claimed() || r.plan.Number > 0 && r.planRank() < planners
	if plans != r.planner && !r.unanswered && (r.watcher != nil || !plans) {
		r.stopWatcher()
		r.planner, r.watcherDue, r.complete = plans, time.Time{}, false // the last watcher did not deliver the presences of all
	}
}
