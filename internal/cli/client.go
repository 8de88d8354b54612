package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natsconn"
)

// A dead connection is detected after two unanswered pings, and a server is redialled after reconnectWait.
const (
	PingInterval  = 10 * time.Second
	reconnectWait = 500 * time.Millisecond
	// refusalPoll is how often a connection that is not made yet is asked whether the server refuses its credentials.
	refusalPoll = 100 * time.Millisecond
)

// Client is a NATS connection and the JetStream context that flags or a natscli context select.
type Client struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Timeout   time.Duration // of one request
}

// Open connects and opens the bucket. An unreachable server and a missing bucket are errors at once. The caller must close
// the connection of the client.
func (e *Env) Open(ctx context.Context, command string) (*Client, *election.Bucket, error) {
	c, err := e.Connection.Connect(nats.Name("election-cli " + command))
	if err != nil {
		return nil, nil, err
	}
	bucket, err := c.OpenBucket(ctx, e.Bucket)
	if err != nil {
		c.Conn.Close()
		return nil, nil, err
	}
	return c, bucket, nil
}

// ConnectWithRetry connects for a command that runs until it is interrupted. The connection dials an unreachable server in
// the background, and redials a lost server without limit. ConnectWithRetry calls fail when the server closes the
// connection for good, when it refuses the credentials before it ever took them, and when there was no connection within
// --connect-timeout. Once the connection was made, a refusal of the credentials only delays the next one. The extra options override its own.
func (c *ConnectionFlags) ConnectWithRetry(name string, fail context.CancelCauseFunc, log *slog.Logger, extra ...nats.Option) (*Client, error) {
	d := &dialing{log: log}
	opts := append(d.options(),
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), // a write that the candidate gave up must not be sent after the reconnect
		nats.PingInterval(PingInterval),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if err := nc.LastError(); err != nil && !errors.Is(err, nats.ErrPermissionViolation) { // no server ends a connection because of a refusal
				fail(fmt.Errorf("the server ended the connection for good: %w", explainDial(err)))
			}
		}),
	)
	var refusals natsconn.Refusals
	connect := func() (*Client, error) {
		client, err := c.Connect(slices.Concat(opts, extra, []nats.Option{refusals.Option()})...)
		if err == nil {
			go failWhenRefused(client.Conn, &refusals, fail)
		}
		return client, err
	}
	limit := c.connectTimeout
	if limit <= 0 {
		return connect()
	}
	opts = append(opts, nats.Timeout(min(c.Timeout, limit)))
	giveUp := time.AfterFunc(limit, func() {
		if err := d.neverConnected(); err != nil {
			fail(fmt.Errorf("no connection within the --connect-timeout of %v: %w", limit, err))
		}
	})
	client, err := connect()
	if err != nil {
		giveUp.Stop()
	}
	return client, err
}

// failWhenRefused calls fail, and closes the connection, if it is never made because the server refuses the credentials.
func failWhenRefused(nc *nats.Conn, refusals *natsconn.Refusals, fail context.CancelCauseFunc) {
	for !refusals.Connected() && !nc.IsClosed() {
		if err := refusals.Final(nc); err != nil {
			fail(fmt.Errorf("the server refuses the credentials: %w", explainDial(err)))
			nc.Close()
			return
		}
		time.Sleep(refusalPoll)
	}
}

// serverURLs returns the URLs that a connection dials, without credentials.
func serverURLs(nc *nats.Conn) []string {
	var urls []string
	for _, u := range nc.Servers() {
		urls = append(urls, natsconn.WithoutSecrets(u))
	}
	return urls
}

// LogConnection returns options that log each change of the state of a connection, and its asynchronous errors.
func LogConnection(log *slog.Logger) []nats.Option { return (&dialing{log: log}).options() }
