package election

import (
	"context"
	"time"
)

// preemption returns when to ask the leader to hand over to this candidate, the zero time if there is no reason to.
func (e *Election) preemption(a *ear) time.Time {
	if !e.opts.preempt || a.hub.conn == nil || !e.gate.open() {
		return time.Time{}
	}
	known, _ := a.state()
	if r := known.record; !known.held() || r.Term == 0 || r.Instance == e.instance || r.Priority >= e.opts.priority {
		return time.Time{}
	}
	return a.asked.Add(e.facts.Load().interval)
}

// preempt asks the leader to hand over to this candidate. It does not wait for the answer: the release tells.
func (e *Election) preempt(ctx context.Context, a *ear) {
	a.asked = time.Now()
	c, _ := a.state()
	q := a.hub.question(e.key)
	q.Instance, q.To = c.record.Instance, e.name
	e.log.Info("Asking a leader of lower priority to hand over", "leader", c.record.Name, "priority", c.record.Priority)
	ask := func() error {
		return askLeader(ctx, a.hub.conn, a.hub.bucket.Bucket(), verbTransfer, q, a.ttl+windUpPatience)
	}
	for _, other := range a.hub.listeners(e.key) { // a connection may not echo the question to this process
		if leader := other.election; leader.instance == q.Instance {
			ask = func() error { return leader.Transfer(ctx, e.name) }
		}
	}
	go func() {
		if err := ask(); err != nil && ctx.Err() == nil {
			e.log.Warn("Leader of lower priority has not handed over", "leader", c.record.Name, "error", err)
		}
	}()
}
