package fence

import "github.com/nats-io/nats.go"

// Epochs returns how many epochs this process may open another handle for.
func Epochs() int {
	epochs.Lock()
	defer epochs.Unlock()
	return len(epochs.by)
}

// Prepared returns a message as the handle would send it now.
func (s *Stream) Prepared(m *nats.Msg) *nats.Msg {
	return s.handle.demand.Load().fenced(m)
}
