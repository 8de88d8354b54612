package kv

import "sync"

// Shared keeps a value for each bucket that this process uses, by [Bucket.ID]. To hold the value of one bucket keeps nobody from that of another: what is
// done meanwhile may have to wait for a connection.
type Shared[T any] struct {
	mu sync.Mutex
	by map[any]*slot[T]
}

// slot is the place of the value of one bucket.
type slot[T any] struct {
	sync.Mutex
	value   *T
	holders int // that hold it, or wait for it
}

// Hold returns where the value of a bucket is, for the caller alone until it calls release. There is none, nil, until a holder puts one there, and none again
// after one has set nil. A bucket whose id is nil shares nothing.
func (s *Shared[T]) Hold(id any) (value **T, release func()) {
	if id == nil {
		return new(*T), func() {}
	}
	s.mu.Lock()
	x := s.by[id]
	if x == nil {
		if s.by == nil {
			s.by = map[any]*slot[T]{}
		}
		x = &slot[T]{}
		s.by[id] = x
	}
	x.holders++
	s.mu.Unlock()
	x.Lock()
	return &x.value, func() {
		x.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.holders--; x.holders == 0 && x.value == nil {
			delete(s.by, id)
		}
	}
}
