package fence

import "github.com/nats-io/nats.go"

// Prepared returns a message as the handle would send it now.
func (s *Stream) Prepared(m *nats.Msg) *nats.Msg {
	return s.epoch.demand.Load().fenced(m)
}
