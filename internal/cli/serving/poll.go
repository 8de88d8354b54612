package serving

import (
	"context"
	"sync"
	"time"
)

// poll is a query that readers of the page cause, at most one at a time, and whose answer all readers share.
type poll[T any] struct {
	mu      sync.Mutex
	running chan struct{} // closed when the current query ends; nil without a query
	began   time.Time     // when the last completed query began
	answer  T             // of the last query that did not fail
	err     error         // why the last query failed
}

// get returns the answer of the last query that did not fail, and why the last query failed. If the last one began before the given time or
// is too old, get starts another one. It waits for the new answer if wait is set, or if there was no query before. Otherwise it returns the old
// answer.
func (q *poll[T]) get(ctx context.Context, p *statusPage, after time.Time, wait bool, query func(context.Context) (T, error), done func(T, error)) (T, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin(p, after, query, done)
	if running := q.running; running != nil && (wait || q.began.IsZero()) {
		q.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
		}
		q.mu.Lock()
	}
	return q.answer, q.err
}

// refresh has the next query made as get does, and does not wait.
func (q *poll[T]) refresh(p *statusPage, after time.Time, query func(context.Context) (T, error), done func(T, error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begin(p, after, query, done)
}

// begin starts a query if the last one began before the given time or is too old, unless one is under way. The caller holds mu.
func (q *poll[T]) begin(p *statusPage, after time.Time, query func(context.Context) (T, error), done func(T, error)) {
	outdated := time.Since(q.began) >= queryInterval || q.began.Before(after)
	if !outdated || q.running != nil {
		return
	}
	running := make(chan struct{})
	if p.start(func() { q.run(p, running, query, done) }) {
		q.running = running
	}
}

// run makes one query, for all readers.
func (q *poll[T]) run(p *statusPage, running chan struct{}, query func(context.Context) (T, error), done func(T, error)) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, queryInterval)
	defer cancel()
	answer, err := query(ctx)
	q.mu.Lock()
	q.began, q.err, q.running = began, err, nil
	if err == nil {
		q.answer = answer
	}
	q.mu.Unlock()
	done(answer, err)
	close(running)
}
