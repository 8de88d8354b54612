package group

import (
	"context"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// firstPlanDelay is how long the first plan of a group waits for members that start together, and for as long again after each that comes.
	firstPlanDelay = 500 * time.Millisecond
	// minSettleTime and maxSettleTime bound for how long nobody must have come or gone when a plan is made. It is half of the time since the first
	// of those did that followed one another without a pause: a plan for one is made at once, and a fleet that comes or goes within seconds gets
	// few plans.
	minSettleTime, maxSettleTime = 5 * time.Millisecond, 250 * time.Millisecond
	// maxUnsettled is how long a plan waits at most, while members come and go without a pause, and maxFirstUnsettled is for the first plan.
	maxUnsettled, maxFirstUnsettled = time.Second, 5 * time.Second
	// memberSpacing is how much time passes at least from one plan to the next, for each member: all of them read each plan.
	memberSpacing = 2 * time.Millisecond
	// planInterval is how much later each member plans than the member that has been present longer, at most.
	planInterval = time.Second
	// plansPerTTL is how many times per TTL the plan is written and announced, so that it does not expire.
	plansPerTTL = 3
)

// planning is what a member knows that plans, or claims to.
type planning struct {
	burst    burst
	nextPlan plan      // the plan that would fit; the one in force while that does
	outdated time.Time // since when the plan in force does not fit; zero while it does
	retryAt  time.Time // no claim, plan or announcement is written before this, because the last one failed
}

// planInterval returns how much later each member plans than the member that has been present longer.
func (v *view) planInterval() time.Duration { return min(planInterval, v.ttl/8) }

// planIfDue writes and announces the next plan, or the last one again, if that is due and this member's turn.
func (r *run) planIfDue(ctx context.Context) {
	if !r.planner || !r.complete {
		return
	}
	if !r.burst.pending.IsZero() {
		if !r.isDue(r.compareDue()) {
			return
		}
		r.burst.pending = time.Time{}
		r.comparePlan()
	}
	rank, due := r.rank(), r.planDue
	switch {
	case rank < 0:
		return
	case r.plan.Number == 0:
		due = r.begun
	case !r.outdated.IsZero():
		due = r.outdated
	}
	r.announceIfDue(ctx, rank)
	due = due.Add(time.Duration(rank) * r.planInterval())
	if !r.isDue(timeutil.Later(due, r.retryAt)) {
		return
	}
	if !r.ending && r.members[r.name].seen.Before(r.forgot) {
		r.confirm()
		return
	}
	r.writePlan(ctx)
	r.actBy(r.retryAt)
}

// burst is what is known of members that come and go, one soon after the other.
type burst struct {
	begun   time.Time // when the first came or went
	last    time.Time // when the last one did
	pending time.Time // when the first did with which the plan was not compared; zero if there is none
}

// note takes note that something has changed of who is present.
func (b *burst) note() {
	now := time.Now()
	if now.Sub(b.last) > maxSettleTime {
		b.begun = now
	}
	b.last = now
	if b.pending.IsZero() {
		b.pending = now
	}
}

// settled returns when the burst counts as over: after a pause, or when one has been pending for the longest time.
func (b *burst) settled(longest time.Duration) time.Time {
	pause := min(max(b.last.Sub(b.begun)/2, minSettleTime), maxSettleTime)
	return timeutil.Earlier(b.last.Add(pause), b.pending.Add(longest))
}

// compareDue returns when the plan is to be compared with the members that are present.
func (r *run) compareDue() time.Time {
	if r.plan.Number == 0 {
		return timeutil.Earlier(r.burst.last.Add(firstPlanDelay), r.begun.Add(min(maxFirstUnsettled, r.ttl/2)))
	}
	settled := r.burst.settled(min(maxUnsettled, r.ttl/plansPerTTL))
	return timeutil.Later(settled, r.planChanged.Add(memberSpacing*time.Duration(len(r.plan.Order))))
}

// rank returns how many members plan before this one, of which only the planners count; -1 if this member does not plan. Members that were not seen
// for half a TTL are not waited for. One that claimed to plan does so before all others while there is no plan. One that leaves goes on until others
// plan, or nobody is left.
func (r *run) rank() (rank int) {
	present := r.present()
	switch {
	case r.ending && r.othersPlan(present):
		return 1
	case r.ending:
		return 0
	case r.claimed() && r.plan.Number == 0:
		return 0
	}
	for _, m := range present {
		if m.Instance == r.self.Instance {
			return min(rank, planners)
		}
		if time.Since(r.members[m.Name].seen) < r.ttl/2 {
			rank++
		}
	}
	return -1
}

// othersPlan reports whether another of the present members is a planner by the plan in force.
func (r *run) othersPlan(present []presence) bool {
	plan := r.plan.Order[:min(planners, len(r.plan.Order))]
	return slices.ContainsFunc(present, func(m presence) bool { return m.Name != r.name && slices.Contains(plan, m.Name) })
}

// confirm has this member write its presence, before it plans without members that it has not seen for a TTL: it may be this member that is
// cut off. The plan is due once the watcher has delivered that presence, and with it all that was stored before.
func (r *run) confirm() {
	if r.presenceSent.Before(r.forgot) {
		r.presenceDue = time.Now()
	}
}

// comparePlan makes the plan for the members that are present, and notes since when the plan in force differs from it.
func (r *run) comparePlan() {
	present := r.present()
	full := len(present) > maxMembers
	if full {
		present = present[:maxMembers]
	}
	next := r.plan.next(r.name, present)
	next.Full = full
	fits := next.same(r.plan)
	if _, planned := next.Keys[r.name]; !planned { // it leaves, and may have to plan all the same
		next.Keys[r.name] = []string{}
		fits = fits || next.same(r.plan)
	}
	if r.plan.Number > 0 && fits {
		r.nextPlan, r.outdated = r.plan, time.Time{}
		r.nextPlan.Order = next.Order
		return
	}
	if r.outdated.IsZero() || next.Number != r.nextPlan.Number {
		r.outdated = time.Now()
	}
	r.nextPlan = next
}

// writePlan writes the next plan over the last one received. If another member was quicker, its plan is received soon.
func (r *run) writePlan(ctx context.Context) {
	r.retryAt = time.Now().Add(r.planInterval())
	call, cancel := r.request(ctx)
	defer cancel()
	value := encode(r.nextPlan)
	revision, err := r.writeOver(call, r.planKey(), value, r.planRevision)
	switch kv.Classify(err) {
	case kv.Applied:
		if r.nextPlan.Number != r.plan.Number {
			r.log.Info("Planned", "plan", r.nextPlan.Number, "members", len(r.nextPlan.Keys))
		}
		r.setPlan(r.nextPlan, hashOf(value), revision)
		r.outdated, r.retryAt = time.Time{}, time.Time{}
		r.announce(ctx)
		r.refreshLists(ctx)
	case kv.Refused:
		r.readPlan(call)
	default:
		r.warn("Plan not written", err)
	}
}

// writeOver stores a value under a key over the given revision or, if that is 0, over nothing.
func (r *run) writeOver(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	if over == 0 {
		return r.bucket.Create(ctx, key, value)
	}
	return r.bucket.Update(ctx, key, value, over)
}

// readPlan reads the plan after a write was refused: not every bucket announces that the plan has expired. If there is none, the next is
// written at once.
func (r *run) readPlan(ctx context.Context) {
	over := r.planRevision
	entry, err := r.bucket.Get(ctx, r.planKey())
	switch kv.Classify(err) {
	case kv.Absent:
		r.planRevision = 0
	case kv.Applied:
		r.receivePlan(entry)
	}
	if r.planRevision != over {
		r.retryAt = time.Time{}
	}
}
