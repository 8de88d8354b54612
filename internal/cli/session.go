package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natsconn"
)

// Detecting a dead connection takes two pings that stay unanswered, and reconnecting as long as this at most.
const (
	JoinPing      = 10 * time.Second
	joinReconnect = 500 * time.Millisecond
)

// Open connects for a command that looks or asks: a server or bucket that is not there is an error at once. Close the
// session's connection.
func (t *Env) Open(ctx context.Context, command string) (*Session, *election.Bucket, error) {
	s, err := t.Connection.Connect(nats.Name("election-cli " + command))
	if err != nil {
		return nil, nil, err
	}
	bucket, err := s.FindBucket(ctx, t.Bucket)
	if err != nil {
		s.Conn.Close()
		return nil, nil, err
	}
	return s, bucket, nil
}

// FindBucket returns the bucket of that name.
func (s *Session) FindBucket(ctx context.Context, name string) (*election.Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	bucket, err := election.OpenBucket(ctx, s.JetStream, name)
	if err == nil {
		return bucket, nil
	}
	if explained := s.Permanent(name, err); explained != nil {
		return nil, explained
	}
	return nil, fmt.Errorf("bucket %q on %s cannot be read: %w", name, s.ServerURL(), err)
}

// Join connects for a command that stands as a candidate. A server that is not there yet is tried in the background, and
// one that is lost again for ever; a connection that is closed for good, as after wrong credentials, is a failure.
func (c *ConnFlags) Join(client string, fail context.CancelCauseFunc, log *slog.Logger) (*Session, error) {
	opts := append(LogConnection(log),
		nats.Name(client),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(joinReconnect),
		nats.ReconnectBufSize(-1), // nothing may be sent that was given up before
		nats.PingInterval(JoinPing),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if err := nc.LastError(); err != nil {
				fail(fmt.Errorf("the server ended the connection for good: %w", err))
			}
		}),
	)
	s, err := c.Connect(opts...)
	if err != nil {
		return nil, err
	}
	if !s.Conn.IsConnected() {
		log.Warn("Server cannot be reached yet, waiting for it", "server", strings.Join(ServersOf(s.Conn), ", "))
	}
	return s, nil
}

// ServersOf returns the servers that a connection tries, without secrets.
func ServersOf(nc *nats.Conn) []string {
	var urls []string
	for _, u := range nc.Servers() {
		urls = append(urls, natsconn.WithoutSecrets(u))
	}
	return urls
}

// LogConnection returns options that make the ups and downs of a connection known.
func LogConnection(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Info("Connected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()), "version", nc.ConnectedServerVersion())
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("Reconnected", "server", natsconn.WithoutSecrets(nc.ConnectedUrl()))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we close it ourselves
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
