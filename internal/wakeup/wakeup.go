// Package wakeup wakes goroutines that wait for a change. Whoever wakes them never waits.
package wakeup

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
