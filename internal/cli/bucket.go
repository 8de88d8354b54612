package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/timeutil"
)

// RetryPause is how long to wait before a server that was not ready is asked again.
const RetryPause = 500 * time.Millisecond

// AwaitBucket returns the bucket of that name. A server that cannot be reached or is not ready yet is waited for; a
// server that is, but has no such bucket, is an error that says how to make it. Where nobody answers for JetStream,
// somebody may yet: that is given as long as any other request.
func (s *Session) AwaitBucket(ctx context.Context, name string, log *slog.Logger) (*election.Bucket, error) {
	complained := false
	var silent time.Time // since when nobody answers for JetStream
	for {
		if !s.Conn.IsConnected() { // the connection itself logs that
			if err := timeutil.Pause(ctx, RetryPause/10); err != nil {
				return nil, err
			}
			continue
		}
		bucket, err := election.OpenBucket(ctx, s.JetStream, name)
		if err == nil {
			return bucket, nil
		}
		switch {
		case !errors.Is(err, nats.ErrNoResponders):
			silent = time.Time{}
		case silent.IsZero():
			silent = time.Now()
		case time.Since(silent) > s.Timeout:
			err = jetstream.ErrJetStreamNotEnabled
		}
		if err := s.Permanent(name, err); err != nil {
			return nil, err
		}
		if !complained && ctx.Err() == nil {
			log.Warn("Bucket cannot be read yet, waiting for it", "bucket", name, "error", err)
			complained = true
		}
		if err := timeutil.Pause(ctx, RetryPause); err != nil {
			return nil, err
		}
	}
}

// Permanent returns an error for the user if err is one that waiting does not mend.
func (s *Session) Permanent(name string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return noBucket{fmt.Errorf("there is no bucket %q on %s: make it with '%s', or name another with --bucket", name, s.ServerURL(), CommandOn("bucket add", name))}
	case errors.Is(err, election.ErrInvalidOption):
		return fmt.Errorf("--bucket %q is no name for a bucket: use letters, digits, - and _", name)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s has no JetStream for this account: enable it there, name another server with --server, or try things out with 'election-cli server'", s.ServerURL())
	case errors.Is(err, jetstream.ErrBadBucket):
		return fmt.Errorf("the stream behind bucket %q on %s is no bucket: name another with --bucket", name, s.ServerURL())
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("the connection was closed: %w", err)
	}
	return nil
}

// noBucket is an error that says how to make a bucket that is not there.
type noBucket struct{ error }

// Unwrap returns what it means.
func (noBucket) Unwrap() error { return jetstream.ErrBucketNotFound }

// CommandOn returns the command line of a command on that bucket.
func CommandOn(command, bucket string) string {
	if bucket == DefaultBucket {
		return "election-cli " + command
	}
	return "election-cli " + command + " --bucket " + bucket
}

// ServerURL returns the URL of the server that the session is connected to.
func (s *Session) ServerURL() string { return natsconn.WithoutSecrets(s.Conn.ConnectedUrl()) }
