package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	go func() { reason <- whyNotAccepted(ctx, nc) }()
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
