package observe

import (
	"context"
	"sync"

	"github.com/natscampaign/election/internal/wakeup"
)

// maxInOrder is how many events wait in order.
const maxInOrder = 1000

// queue holds events for a slow reader. The first maxInOrder events wait in order. Behind them waits only the latest event of each key,
// so that the queue grows with the number of keys and not with that of changes.
type queue struct {
	mu     sync.Mutex
	events []Event          // the first events, in order
	late   map[string]Event // the latest event of each key behind the first
	held   map[string]bool  // the keys that are held for a reader who has read the first events
	ready  chan struct{}    // receives after a push
}

func newQueue() *queue {
	return &queue{late: map[string]Event{}, held: map[string]bool{}, ready: make(chan struct{}, 1)}
}

func (q *queue) push(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, waiting := q.late[e.Key]
	switch {
	case len(q.events) < maxInOrder: // and nothing is late
		q.append(e)
	case waiting && e.ends() && !q.held[e.Key]: // the reader never learns that the key was held
		delete(q.late, e.Key)
	default:
		if waiting && e.Kind == Renewed && before.Kind < Renewed { // of the same term
			e.Kind, e.At, e.Reason = before.Kind, before.At, before.Reason
		}
		q.late[e.Key] = e
	}
	wakeup.Send(q.ready)
}

// append puts an event behind the first. The caller holds mu.
func (q *queue) append(e Event) {
	q.events = append(q.events, e)
	if e.ends() {
		delete(q.held, e.Key)
	} else {
		q.held[e.Key] = true
	}
}

// next removes and returns the event that has waited longest; false if none waits.
func (q *queue) next() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return Event{}, false
	}
	e := q.events[0]
	q.events[0] = Event{} // so that the array does not keep its memory
	q.events = q.events[1:]
	for key, late := range q.late { // any key: the order of different keys does not matter
		delete(q.late, key)
		q.append(late)
		break
	}
	return e, true
}

// deliver passes events on until ctx ends, and closes the channel.
func (q *queue) deliver(ctx context.Context, out chan<- Event) {
	defer close(out)
	for {
		e, waiting := q.next()
		send, ready := out, q.ready
		if waiting {
			ready = nil
		} else {
			send = nil
		}
		select {
		case send <- e:
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
}
