package natsconn

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
)

// dialTimeout is how long one server has to accept a connection.
const dialTimeout = 2 * time.Second

// dialFunc makes a connection of its own to one server, as the client would, but for the handshake.
type dialFunc = func(context.Context) (net.Conn, error)

// dialsOf returns one dialFunc for each server that the client of a connection knows.
func dialsOf(nc *nats.Conn) (dials []dialFunc) {
	o := &nc.Opts
	if o.InProcessServer != nil {
		return []dialFunc{func(context.Context) (net.Conn, error) { return o.InProcessServer.InProcessConn() }}
	}
	for _, server := range nc.Servers() {
		u, err := url.Parse(server)
		switch {
		case err != nil:
		case o.CustomDialer != nil:
			dials = append(dials, func(context.Context) (net.Conn, error) { return o.CustomDialer.Dial("tcp", u.Host) })
		default: // the client has added the port
			dials = append(dials, func(ctx context.Context) (net.Conn, error) {
				dialer := net.Dialer{Timeout: dialTimeout}
				return dialer.DialContext(ctx, "tcp", u.Host)
			})
		}
	}
	return dials
}

// whyNotAccepted returns why the servers of a connection do not accept one; nil if one does. The client tells the reason only to a handler, which
// belongs to the program.
func whyNotAccepted(ctx context.Context, nc *nats.Conn) (err error) {
	for _, dial := range dialsOf(nc) {
		var c net.Conn
		if c, err = dial(ctx); err == nil {
			return c.Close()
		}
	}
	return err
}
