package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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
// connection for good, for example because the credentials are wrong.
func (c *ConnectionFlags) ConnectWithRetry(name string, fail context.CancelCauseFunc, log *slog.Logger) (*Client, error) {
	opts := append(LogConnection(log),
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), // a write that the candidate gave up must not be sent after the reconnect
		nats.PingInterval(PingInterval),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if err := nc.LastError(); err != nil {
				fail(fmt.Errorf("the server ended the connection for good: %w", err))
			}
		}),
	)
	client, err := c.Connect(opts...)
	if err != nil {
		return nil, err
	}
	if !client.Conn.IsConnected() {
		log.Warn("Server cannot be reached yet, waiting for it", "server", strings.Join(ServerURLs(client.Conn), ", "))
	}
	return client, nil
}

// ServerURLs returns the URLs that a connection dials, without credentials.
func ServerURLs(nc *nats.Conn) []string {
	var urls []string
	for _, u := range nc.Servers() {
		urls = append(urls, natsconn.WithoutSecrets(u))
	}
	return urls
}

// LogConnection returns options that log each change of the state of a connection, and its asynchronous errors.
func LogConnection(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Info("Connected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()), "version", nc.ConnectedServerVersion())
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("Reconnected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when this process closed the connection
				log.Warn("Connection lost", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Debug("Server still cannot be reached", "error", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("Asynchronous NATS error", "error", err)
		}),
	}
}
