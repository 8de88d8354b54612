package session

import "time"

// requests are those that are to be made, and those that are under way.
type requests struct {
	ops            []Op
	last           uint64
	waiting        map[uint64]func(time.Time, *Result)
	claimsUnderWay int
}

// request has a request be made, and returns its id. then takes what came of it.
func (q *requests) request(op Op, then func(time.Time, *Result)) (id uint64) {
	q.last++
	op.ID = q.last
	q.ops = append(q.ops, op)
	q.waiting[op.ID] = then
	return op.ID
}

// take returns the requests to make now.
func (q *requests) take() []Op {
	ops := q.ops
	q.ops = nil
	return ops
}

// Done takes what came of a request.
func (s *Session) Done(now time.Time, id uint64, r *Result) {
	then := s.waiting[id]
	delete(s.waiting, id)
	if then != nil {
		then(now, r)
	}
}
