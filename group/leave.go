package group

import (
	"errors"
	"slices"
	"time"
)

const (
	// leaveTimeout is how long a member that leaves waits for requests to hand over while none comes.
	leaveTimeout = 5 * time.Second
	// planLag is after how long all members have received a plan that one has received, nearly always.
	planLag = 100 * time.Millisecond
)

// leave ends the run, for whatever reason. Other members take over the keys that they list first; the rest is released.
func (r *run) leave(err error) {
	r.ending = true
	if !errors.Is(err, ErrReplaced) && r.announceLeaving() {
		r.handOver()
	}
	for _, a := range r.assignments {
		a.cancelRequest()
		if a.election.Load() != nil {
			a.stop()
		}
	}
	for r.unfinished() > 0 {
		<-r.wake
	}
}

// handOver waits until the others have taken over the keys that this member leads and one of them lists, and stops all other campaigns.
// Members may leave meanwhile as well. A member that plans goes on until the others have a plan without it.
func (r *run) handOver() {
	deadline := time.Now().Add(leaveTimeout)
	for fewest := len(r.assignments) + 1; ; {
		r.next = deadline
		if err := r.agree(r.ctx); err != nil {
			return
		}
		wanted, leading, running := r.wanted(), 0, 0
		for _, a := range r.assignments {
			if r.collect(a); !a.running() || a.leads() && !wanted(a.key) {
				continue
			}
			running++
			if !r.isDue(r.expectedUntil(a)) {
				continue
			}
			if r.withdraw(a); a.leads() {
				leading++
			}
		}
		switch {
		case running == 0 && r.succeeded():
			return
		case leading < fewest:
			fewest, deadline = leading, time.Now().Add(leaveTimeout)
		case !time.Now().Before(deadline):
			if leading > 0 {
				r.log.Warn("No other member asks for the keys, releasing them", "keys", leading)
			}
			return
		case r.changed: // by the plan that was read or written just now
			continue
		}
		select {
		case <-time.After(time.Until(r.next)):
		case <-r.wake:
		case entry, ok := <-r.updates:
			_ = r.update(entry, ok) // a member that leaves is not replaced
		}
	}
}

// expectedUntil returns until when the leader of a key may release it to this member, which has asked for it: until the leader, too, has received a plan
// that assigns the key to another. If it does release it, this member leads the key and hands it over in order.
func (r *run) expectedUntil(a *assignment) time.Time {
	_, mine := slices.BinarySearch(r.plan.keysOf(r.name), a.key)
	switch {
	case a.cancel == nil:
		return time.Time{}
	case mine:
		return time.Now().Add(r.ttl)
	}
	return r.planChanged.Add(planLag)
}

// wanted returns a function that reports whether another member takes over a key, as far as this member knows: one that plans knows the
// others; one that does not waits for a plan without it, while the plan has others.
func (r *run) wanted() func(key string) bool {
	if r.planner {
		others := slices.DeleteFunc(r.present(), func(m presence) bool { return m.Name == r.name })
		return func(key string) bool {
			return slices.ContainsFunc(others, func(m presence) bool { return m.lists(key) })
		}
	}
	if _, planned := r.plan.Keys[r.name]; planned {
		return func(string) bool { return len(r.plan.Keys) > 1 }
	}
	assigned := r.plan.assigned()
	return func(key string) bool { return assigned[key] }
}

// succeeded reports whether the others need this member no longer as one that plans: the plan in force is one without it, or there are no others.
func (r *run) succeeded() bool {
	return !r.planner || !r.complete || len(r.plan.Order) < 2 || !slices.Contains(r.plan.Order, r.name)
}

// unfinished returns for how many assignments an election has not ended, or an answer is awaited.
func (r *run) unfinished() (n int) {
	for _, a := range r.assignments {
		if r.collect(a); a.election.Load() != nil || a.cancel != nil {
			n++
		}
	}
	return n
}
