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

	"github.com/natscampaign/election/internal/dial"
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

// Connect connects for a command that makes requests. An unreachable server is an error at once.
func (e *Env) Connect(command string) (*Client, error) {
	return e.Connection.Connect(nats.Name("election-cli " + command))
}

// ConnectWithRetry connects for a command that runs until it is interrupted. The connection dials an unreachable server in
// the background, and redials a lost server without limit. ConnectWithRetry calls fail when the server closes the
// connection for good, when it refuses the credentials before it ever took them, and when there was no connection within
// --connect-timeout. Once the connection was made, a refusal of the credentials only delays the next one. The extra options override its own.
func (c *ConnectionFlags) ConnectWithRetry(name string, fail context.CancelCauseFunc, log *slog.Logger, extra ...nats.Option) (*Client, error) {
	d := &dialing{log: log}
	opts := append(lasting(name, d), nats.ClosedHandler(func(nc *nats.Conn) {
		if err := nc.LastError(); err != nil && !errors.Is(err, nats.ErrPermissionViolation) { // no server ends a connection because of a refusal
			fail(fmt.Errorf("the server ended the connection for good: %w", explainDial(err, "", nc.Opts.TLSHandshakeFirst)))
		}
	}))
	var refusals dial.Refusals
	connect := func() (*Client, error) {
		client, err := c.Connect(slices.Concat(opts, extra, []nats.Option{refusals.Option()})...)
		if err == nil {
			go watchRefusals(client.Conn, &refusals, refusalPoll, func(err error) {
				fail(fmt.Errorf("the server refuses the credentials: %w", explainDial(err, "", client.Conn.Opts.TLSHandshakeFirst)))
				client.Conn.Close()
			})
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

// ConnectForever connects as ConnectWithRetry does, and never gives up: neither an unreachable server nor one that refuses the credentials
// ends the connection; why there is none is logged. It returns an error only if the flags are wrong, see Check.
func (c *ConnectionFlags) ConnectForever(name string, log *slog.Logger) (*Client, error) {
	d, refusals := &dialing{log: log}, &dial.Refusals{}
	client, err := c.Connect(append(lasting(name, d), refusals.Option())...)
	if err == nil {
		go watchRefusals(client.Conn, refusals, reconnectWait, func(err error) { d.failed(err, serverURLs(client.Conn), false) }) // a refusal
	}
	return client, err
}

// lasting returns the options of a connection that outlasts an unreachable server.
func lasting(name string, d *dialing) []nats.Option {
	return append(d.options(),
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), // a write that the candidate gave up must not be sent after the reconnect
		nats.PingInterval(PingInterval),
	)
}

// watchRefusals calls refused, again and again, while the server refuses the credentials of a connection that was never made. It returns when the
// connection is made or closed. The client reports such a refusal to no handler.
func watchRefusals(nc *nats.Conn, refusals *dial.Refusals, interval time.Duration, refused func(error)) {
	for !refusals.Connected() && !nc.IsClosed() {
		if err := refusals.Final(nc); err != nil {
			refused(err)
		}
		time.Sleep(interval)
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
