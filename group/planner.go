package group

import (
	"context"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// firstPlanDelay is how long the first plan of a group waits for members that start together.
	firstPlanDelay = 500 * time.Millisecond
	// planInterval is how much later each member plans than the member that has been present longer.
	planInterval = time.Second
	// plansPerTTL is how many times per TTL the plan is written, so that it does not expire.
	plansPerTTL = 3
)

// planIfDue writes the next plan, or the last one again, if that is due and this member's turn. It returns when that may be.
func (r *run) planIfDue(ctx context.Context) time.Time {
	far := time.Now().Add(r.ttl)
	rank := slices.IndexFunc(r.present(), func(m presence) bool { return m.Instance == r.self.Instance })
	if !r.complete || rank < 0 {
		return far
	}
	due := r.planDue
	switch {
	case r.plan.Number == 0:
		due = r.begun.Add(firstPlanDelay)
	case !r.outdated.IsZero():
		due = r.outdated
	}
	due = timeutil.Later(due.Add(time.Duration(rank)*planInterval), r.planNotBefore)
	if time.Now().Before(due) {
		return due
	}
	if r.members[r.name].seen.Before(r.forgot) {
		return r.confirm()
	}
	r.writePlan(ctx)
	return timeutil.Later(time.Now(), r.planNotBefore)
}

// confirm has this member write its presence, before it plans without members that it has not seen for a TTL: it may be this member that is
// cut off. The plan is due once the watcher has delivered that presence, and with it all that was stored before.
func (r *run) confirm() time.Time {
	if r.presenceSent.Before(r.forgot) {
		r.presenceDue = time.Now()
	}
	return r.presenceDue
}

// comparePlan makes the plan for the members that are present, and notes since when the plan in force differs from it.
func (r *run) comparePlan() {
	before := r.nextPlan.Number
	r.nextPlan = r.plan.next(r.name, r.present())
	switch {
	case !r.complete || r.plan.Number > 0 && r.nextPlan.same(r.plan):
		r.nextPlan, r.outdated = r.plan, time.Time{}
	case r.outdated.IsZero() || r.nextPlan.Number != before:
		r.outdated = time.Now()
	}
}

// writePlan writes the next plan over the last one received. If another member was quicker, its plan is received soon.
func (r *run) writePlan(ctx context.Context) {
	r.planNotBefore = time.Now().Add(planInterval)
	call, cancel := r.request(ctx)
	defer cancel()
	var revision uint64
	var err error
	if r.planRevision == 0 {
		revision, err = r.bucket.Create(call, r.planKey(), encode(r.nextPlan))
	} else {
		revision, err = r.bucket.Update(call, r.planKey(), encode(r.nextPlan), r.planRevision)
	}
	switch kv.Classify(err) {
	case kv.Applied:
		if r.nextPlan.Number != r.plan.Number {
			r.log.Info("Planned", "plan", r.nextPlan.Number, "members", len(r.nextPlan.Keys))
		}
		r.setPlan(r.nextPlan, revision)
		r.outdated, r.planNotBefore = time.Time{}, time.Time{}
	case kv.Refused:
		r.readPlan(call)
	default:
		r.warn("Plan not written", err)
	}
}

// readPlan reads the plan after a write was refused: not every bucket announces that the plan has expired. If there is none, the next is
// written at once.
func (r *run) readPlan(ctx context.Context) {
	over, whole := r.planRevision, false
	entry, err := r.bucket.Get(ctx, r.planKey())
	switch kv.Classify(err) {
	case kv.Absent:
		r.planRevision = 0
	case kv.Applied:
		whole = r.receivePlan(entry)
	}
	if !whole && r.planRevision != over {
		r.planNotBefore = time.Time{}
	}
}
