package natsconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Wait waits until a connection that is being made, or made again, is connected, or until ctx ends. The error says then why the servers
// cannot be reached, and wraps ctx's. It is nats.ErrConnectionClosed, with the reason, for a connection that is closed for good. A nil
// connection is not waited for.
func Wait(ctx context.Context, nc *nats.Conn) error {
	if nc == nil || nc.IsConnected() {
		return nil
	}
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	reason := make(chan error, 1)
	go func() { reason <- dial(ctx, nc) }()
	for !nc.IsConnected() {
		if nc.IsClosed() {
			return errors.Join(nats.ErrConnectionClosed, nc.LastError())
		}
		select {
		case <-changes:
		case <-ctx.Done():
			var why error
			select {
			case why = <-reason:
			default:
			}
			if last := nc.LastError(); last != nil { // why a server that answers does not let the user in
				why = last
			}
			if why == nil {
				why = errors.New("no server has answered")
			}
			why = OfConnection.Explain(why, nc.Opts.TLSHandshakeFirst)
			return fmt.Errorf("not connected to %s: %w: %w", servers(nc), why, context.Cause(ctx))
		}
	}
	return nil
}

// servers names the servers of a connection, without secrets.
func servers(nc *nats.Conn) string {
	var list []string
	for _, s := range nc.Servers() {
		list = append(list, WithoutSecrets(s))
	}
	return strings.Join(list, ", ")
}

// dialTimeout is how long one server has to accept a connection.
const dialTimeout = 2 * time.Second

// dial returns why the servers of a connection do not accept one; nil if one does. The client keeps that to itself, but for a handler, which
// belongs to the program.
func dial(ctx context.Context, nc *nats.Conn) (err error) {
	if provider := nc.Opts.InProcessServer; provider != nil {
		c, err := provider.InProcessConn()
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	dialer := nc.Opts.CustomDialer
	if dialer == nil {
		dialer = plainDialer{ctx}
	}
	for _, s := range nc.Servers() {
		u, parseErr := url.Parse(s)
		if parseErr != nil {
			continue
		}
		var c net.Conn
		if c, err = dialer.Dial("tcp", u.Host); err == nil {
			return c.Close()
		}
	}
	return err
}

// plainDialer dials until its context ends.
type plainDialer struct{ context.Context }

func (d plainDialer) Dial(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(d, network, address)
}
