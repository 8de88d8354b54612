package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// firstPatience is how long the first plan of all waits for those who start together.
	firstPatience = 500 * time.Millisecond
	// planSpacing is how much later each member plans than one that has been there longer.
	planSpacing = time.Second
	// planLife is how many times per TTL the plan is written again, lest it expire.
	planLife = 3
)

// planning writes the next plan, or the last again, if that is due and this member's turn. It returns when it may be.
func (r *run) planning(ctx context.Context) time.Time {
	far := time.Now().Add(r.ttl)
	there := r.there()
	rank := slices.IndexFunc(there, func(m presence) bool { return m.Instance == r.self.Instance })
	if !r.told || rank < 0 {
		return far
	}
	due := r.planned.Add(r.ttl / planLife)
	switch {
	case r.plan.Number == 0:
		due = r.began.Add(firstPatience)
	case !r.differs.IsZero():
		due = r.differs
	case r.over == 0:
		due = r.began
	}
	due = later(due.Add(time.Duration(rank)*planSpacing), r.planNext)
	if time.Now().Before(due) {
		return due
	}
	r.put(ctx)
	return time.Now().Add(planSpacing)
}

// compare works out the plan for those that are there.
func (r *run) compare() {
	before := r.wanted.Number
	r.wanted = r.plan.next(r.name, r.there())
	switch {
	case !r.told || r.plan.Number > 0 && r.wanted.same(r.plan):
		r.wanted, r.differs = r.plan, time.Time{}
	case r.differs.IsZero() || r.wanted.Number != before:
		r.differs = time.Now()
	}
}

// put writes the plan that is wanted over the last that was heard. Whoever was quicker is heard of soon.
func (r *run) put(ctx context.Context) {
	r.planNext = time.Now().Add(planSpacing)
	call, cancel := r.try(ctx)
	defer cancel()
	var revision uint64
	var err error
	if r.over == 0 {
		revision, err = r.bucket.Create(call, r.planKey(), encode(r.wanted))
	} else {
		revision, err = r.bucket.Update(call, r.planKey(), encode(r.wanted), r.over)
	}
	switch {
	case err == nil:
		if r.wanted.Number != r.plan.Number {
			r.log.Info("Planned", "plan", r.wanted.Number, "members", len(r.wanted.Keys))
		}
		r.follow(r.wanted, revision)
		r.differs, r.planNext = time.Time{}, time.Time{}
	case conflicts(err):
		r.reread(call)
	default:
		r.trouble("Plan not written", err)
	}
}

// reread reads the plan, which stands there or not against what was heard: of its expiry not every bucket tells.
func (r *run) reread(ctx context.Context) {
	entry, err := r.bucket.Get(ctx, r.planKey())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		r.over, r.planNext = 0, time.Time{}
	case err == nil:
		r.seePlan(entry)
	}
}
