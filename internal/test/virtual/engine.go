// Package virtual is virtual time, and chance that a seed decides: for simulators, of which each schedule is the same each time.
package virtual

import (
	"container/heap"
	"time"
)

// Engine is virtual time, and what is to happen in it. Things that are due in one instant happen in the order in which they were asked for. There is
// one goroutine, so that a seed decides everything.
type Engine struct {
	Now   time.Time
	queue timers
	asked uint64
}

// Timer is something that is to happen.
type Timer struct {
	At    time.Time
	asked uint64 // orders what is due in one instant
	Do    func() // nil once it has happened, or was stopped
}

// At has something happen at a time; now, after what is to happen now already, if that lies in the past.
func (e *Engine) At(at time.Time, do func()) *Timer {
	if at.Before(e.Now) {
		at = e.Now
	}
	e.asked++
	t := &Timer{at, e.asked, do}
	heap.Push(&e.queue, t)
	return t
}

// After has something happen after a while.
func (e *Engine) After(d time.Duration, do func()) *Timer { return e.At(e.Now.Add(d), do) }

// Stop has it not happen. t may be nil.
func (t *Timer) Stop() {
	if t != nil {
		t.Do = nil
	}
}

// Waits reports whether it has neither happened nor been stopped.
func (t *Timer) Waits() bool { return t != nil && t.Do != nil }

// RunUntil has everything happen that is due until the given time, which it is then.
func (e *Engine) RunUntil(end time.Time) {
	for len(e.queue) > 0 && !e.queue[0].At.After(end) {
		t := heap.Pop(&e.queue).(*Timer)
		if do := t.Do; do != nil {
			e.Now, t.Do = t.At, nil
			do()
		}
	}
	e.Now = end
}

// timers is a heap of what is to happen, the next first.
type timers []*Timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return q[i].At.Before(q[j].At) || q[i].At.Equal(q[j].At) && q[i].asked < q[j].asked
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(t any)   { *q = append(*q, t.(*Timer)) }
func (q *timers) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}
