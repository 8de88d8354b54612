package main

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
	joinPing      = 10 * time.Second
	joinReconnect = 500 * time.Millisecond
)

// open connects for a command that looks or asks: a server or bucket that is not there is an error at once. Close the
// session's connection.
func (t *tool) open(ctx context.Context, command string) (*session, *election.Bucket, error) {
	s, err := t.conn.connect(nats.Name("election-cli " + command))
	if err != nil {
		return nil, nil, err
	}
	bucket, err := s.findBucket(ctx, t.bucket)
	if err != nil {
		s.nc.Close()
		return nil, nil, err
	}
	return s, bucket, nil
}

// findBucket returns the bucket of that name.
func (s *session) findBucket(ctx context.Context, name string) (*election.Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	bucket, err := election.OpenBucket(ctx, s.js, name)
	if err == nil {
		return bucket, nil
	}
	if explained := s.hopeless(name, err); explained != nil {
		return nil, explained
	}
	return nil, fmt.Errorf("bucket %q on %s cannot be read: %w", name, s.server(), err)
}

// join connects for a command that stands as a candidate. A server that is not there yet is tried in the background, and
// one that is lost again for ever; a connection that is closed for good, as after wrong credentials, is a failure.
func (c *connFlags) join(client string, fail context.CancelCauseFunc, log *slog.Logger) (*session, error) {
	opts := append(logConnection(log),
		nats.Name(client),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(joinReconnect),
		nats.ReconnectBufSize(-1), // nothing may be sent that was given up before
		nats.PingInterval(joinPing),
		nats.ClosedHandler(func(nc *nats.Conn) {
			if err := nc.LastError(); err != nil {
				fail(fmt.Errorf("the server ended the connection for good: %w", err))
			}
		}),
	)
	s, err := c.connect(opts...)
	if err != nil {
		return nil, err
	}
	if !s.nc.IsConnected() {
		log.Warn("Server cannot be reached yet, waiting for it", "server", strings.Join(serversOf(s.nc), ", "))
	}
	return s, nil
}

// serversOf returns the servers that a connection tries, without secrets.
func serversOf(nc *nats.Conn) []string {
	var urls []string
	for _, u := range nc.Servers() {
		urls = append(urls, natsconn.WithoutSecrets(u))
	}
	return urls
}
