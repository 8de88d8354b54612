package sim

import (
	"container/heap"
	"time"
)

// engine is virtual time, and what is to happen in it. Things that are due in one instant happen in the order in which they were asked for. There is
// one goroutine, so that a seed decides everything.
type engine struct {
	now   time.Time
	queue timers
	asked uint64
}

// timer is something that is to happen.
type timer struct {
	at    time.Time
	asked uint64 // orders what is due in one instant
	do    func() // nil once it has happened, or was stopped
}

// at has something happen at a time; now, after what is to happen now already, if that lies in the past.
func (e *engine) at(at time.Time, do func()) *timer {
	if at.Before(e.now) {
		at = e.now
	}
	e.asked++
	t := &timer{at, e.asked, do}
	heap.Push(&e.queue, t)
	return t
}

// after has something happen after a while.
func (e *engine) after(d time.Duration, do func()) *timer { return e.at(e.now.Add(d), do) }

// stop has it not happen. t may be nil.
func (t *timer) stop() {
	if t != nil {
		t.do = nil
	}
}

// waits reports whether it has neither happened nor been stopped.
func (t *timer) waits() bool { return t != nil && t.do != nil }

// runUntil has everything happen that is due until the given time, which it is then.
func (e *engine) runUntil(end time.Time) {
	for len(e.queue) > 0 && !e.queue[0].at.After(end) {
		t := heap.Pop(&e.queue).(*timer)
		if do := t.do; do != nil {
			e.now, t.do = t.at, nil
			do()
		}
	}
	e.now = end
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// timers is a heap of what is to happen, the next first.
type timers []*timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].asked < q[j].asked
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(t any)   { *q = append(*q, t.(*timer)) }
func (q *timers) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return t
}
