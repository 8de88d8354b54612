package natstest

import (
	"net"
	"sync"
	"sync/atomic"
)

// Stuck dials connections to whose server nothing can be written while it is stuck, as if that did not read. The client's mutex is held meanwhile, so that its
// tests run on real time: a goroutine that waits for a mutex keeps virtual time from going on.
type Stuck struct{ until atomic.Pointer[chan struct{}] }

// Begin makes the connections stuck until end is called, once or more often.
func (s *Stuck) Begin() (end func()) {
	until := make(chan struct{})
	s.until.Store(&until)
	return sync.OnceFunc(func() {
		s.until.Store(nil)
		close(until)
	})
}

// Dial opens a connection.
func (s *Stuck) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return stuckConn{c, s}, err
}

type stuckConn struct {
	net.Conn
	s *Stuck
}

func (c stuckConn) Write(b []byte) (int, error) {
	if until := c.s.until.Load(); until != nil {
		<-*until
	}
	return c.Conn.Write(b)
}
