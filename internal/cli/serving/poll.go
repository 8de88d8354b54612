package serving

import (
	"context"
	"sync"
	"time"
)

// poll is a query that readers of the page cause: at most one at a time, for all readers. The query itself records its answer.
type poll struct {
	mu      sync.Mutex
	running chan struct{} // closed when the current query ends; nil without a query
	began   time.Time     // when the last completed query began
}

// ask begins a query if the last one is too old, or began before the given time, unless one is under way. It waits for the answer if wait is
// set, or if there was no query before.
func (q *poll) ask(ctx context.Context, p *statusPage, after time.Time, wait bool, query func(context.Context)) {
	running, first := q.begin(p, after, query)
	if running != nil && (wait || first) {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
}

// begin is ask without the wait. It returns a channel that is closed when the current query ends; nil without a query.
func (q *poll) begin(p *statusPage, after time.Time, query func(context.Context)) (running chan struct{}, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	outdated := time.Since(q.began) >= queryInterval || q.began.Before(after)
	if outdated && q.running == nil {
		running := make(chan struct{})
		if p.start(func() { q.run(p, running, query) }) {
			q.running = running
		}
	}
	return q.running, q.began.IsZero()
}

// run makes one query.
func (q *poll) run(p *statusPage, running chan struct{}, query func(context.Context)) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, queryInterval)
	defer cancel()
	query(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.began, q.running = began, nil
	close(running)
}
