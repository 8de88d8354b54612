// Package wakeup wakes goroutines that wait for a change. Whoever wakes them never waits.
package wakeup

import "context"

// Send makes a channel of capacity one receive at least once more.
func Send(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is to receive already
	}
}

// Signal wakes all that wait for it. Its owner's mutex is held while it is used.
type Signal struct{ c chan struct{} } // nil if nobody waits

// Wait returns a channel that is closed at the next Broadcast.
func (s *Signal) Wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Broadcast closes the channels of all that wait.
func (s *Signal) Broadcast() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// Latch wakes all that wait for something that happens once, and who comes later does not wait. Most have nobody who waits: only then is
// there a channel. Its owner's mutex is held while it is used.
type Latch struct {
	signal Signal
	closed bool
}

// closed is the channel of all latches that are closed.
var closed = make(chan struct{})

func init() { close(closed) }

// Wait returns a channel that is closed at Close.
func (l *Latch) Wait() <-chan struct{} {
	if l.closed {
		return closed
	}
	return l.signal.Wait()
}

// Close closes the channels of all that wait, now or later.
func (l *Latch) Close() {
	l.closed = true
	l.signal.Broadcast()
}

// Wait waits until a channel is closed. It returns ctx's error if ctx ends before.
func Wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-c: // both have happened
		return nil
	default:
		return ctx.Err()
	}
}
