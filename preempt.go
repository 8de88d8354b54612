package election

import (
	"context"
	"time"
)

// preemption returns when to ask the leader to hand over to this candidate, the zero time if there is no reason to.
func (e *Election) preemption(a *ear) time.Time {
	c, ok := a.latest()
	open, _ := e.gate.open()
	if !open || !e.opts.preempt || a.hub.conn == nil || !ok || c.vacant() || c.record.Term == 0 ||
		c.record.Instance == e.instance || c.record.Priority >= e.opts.priority {
		return time.Time{}
	}
	return a.asked.Add(e.facts.Load().interval)
}

// preempt asks the leader to hand over to this candidate. It does not wait for the answer: the release tells.
func (e *Election) preempt(ctx context.Context, a *ear) {
	a.asked = time.Now()
	c, _ := a.latest()
	q := question{Key: e.key, Bucket: *a.hub.created.Load(), Instance: c.record.Instance, To: e.name}
	e.log.Info("Asking a leader of lower priority to hand over", "leader", c.record.Name, "priority", c.record.Priority)
	for _, other := range a.hub.listeners(e.key) {
		if l := other.election; l.instance == q.Instance { // a connection may not echo the question
			go func() { _ = l.Transfer(ctx, e.name) }()
			return
		}
	}
	go func() {
		err := askLeader(ctx, a.hub.conn, a.hub.bucket.Bucket(), verbTransfer, q, a.ttl+windUpPatience)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("Leader of lower priority has not handed over", "leader", c.record.Name, "error", err)
		}
	}()
}
