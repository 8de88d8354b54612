package dial

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Refusals has a connection outlast refusals of its credentials. The NATS client closes a connection for good after two refusals in a
// row by one server, even one that reconnects for ever: a server that lacks the user for a second, because its configuration was
// reloaded, then ends every election on that connection. A connection that was never made is another matter: its credentials are wrong.
type Refusals struct{ connected atomic.Bool }

// Option returns the option for the connection; give it last.
func (r *Refusals) Option() nats.Option {
	return func(o *nats.Options) error {
		o.IgnoreAuthErrorAbort = true
		given := o.ConnectedCB
		o.ConnectedCB = func(nc *nats.Conn) {
			r.connected.Store(true)
			if given != nil {
				given(nc)
			}
		}
		return nil
	}
}

// Connected reports whether the connection was made, now or before.
func (r *Refusals) Connected() bool { return r.connected.Load() }

// Final returns the refusal of credentials with which the connection was never made, once they were refused twice; nil before. The caller
// closes the connection.
func (r *Refusals) Final(nc *nats.Conn) error {
	// The client forgets the error of the first attempt before it makes the second.
	if err := nc.LastError(); !r.Connected() && !nc.IsConnected() && IsRefusal(err) {
		return err
	}
	return nil
}

// IsRefusal reports whether a server refused the credentials of a connection.
func IsRefusal(err error) bool {
	return slices.ContainsFunc([]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired}, func(refusal error) bool {
		return errors.Is(err, refusal)
	})
}
