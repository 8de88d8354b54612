package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/wakeup"
)

const (
	queueLimit   = 1 << 20 // bytes
	flushTimeout = 2 * time.Second
)

// Queue is a writer that never blocks: a leader must not lose its lease because a user has stopped the output of the
// terminal. The queue holds up to a megabyte. It drops writes beyond that, and writes a notice in their place.
type Queue struct {
	w       io.Writer
	dropped func(lines int) string // returns the notice
	failed  func(error)

	mu       sync.Mutex
	pending  bytes.Buffer
	nDropped int
	closed   bool
	wake     chan struct{}
	done     chan struct{}
}

// NewQueue returns a queue in front of w, and starts a goroutine that ends with Close. The function
// dropped returns the notice for dropped writes. The queue calls failed once, with the first error of w, and writes nothing more.
func NewQueue(w io.Writer, dropped func(lines int) string, failed func(error)) *Queue {
	q := &Queue{w: w, dropped: dropped, failed: failed, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues p as a whole, or drops p as a whole. It always reports success.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed: // not counted: there is no more output in which a line could be missing
	case q.pending.Len()+len(p) > queueLimit:
		q.nDropped++
	default:
		q.pending.Write(p)
		q.signal()
	}
	return len(p), nil
}

// Close writes the pending output and the notice for dropped writes. It returns after two seconds even if w still blocks.
// The queue ignores later writes.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(flushTimeout):
	}
}

func (q *Queue) signal() { wakeup.Send(q.wake) }

func (q *Queue) run() {
	defer close(q.done)
	for range q.wake {
		for {
			p, dropped, closed := q.drain()
			if dropped > 0 {
				p = append(p, q.dropped(dropped)...)
			}
			if len(p) == 0 {
				if closed {
					return
				}
				break
			}
			if _, err := q.w.Write(p); err != nil {
				q.failed(errors.New(err.Error())) // not as EPIPE, which ends a command that only prints silently: this one says why it ends
				return
			}
		}
	}
}

// drain empties the queue.
func (q *Queue) drain() (p []byte, dropped int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p = bytes.Clone(q.pending.Bytes())
	q.pending.Reset()
	dropped, q.nDropped = q.nDropped, 0
	return p, dropped, q.closed
}

// DroppedLines returns the notice for dropped lines of text.
func DroppedLines(lines int) string {
	return fmt.Sprintf("... %s dropped here: the output was not read in time\n", Plural(lines, "line"))
}
