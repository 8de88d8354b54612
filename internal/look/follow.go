package look

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/observe"
)

// Follow connects and returns the events of the keys until ctx ends. It waits for an unreachable server, and retries while
// the bucket cannot be observed; a missing bucket and a permission that the server refuses are errors. Follow calls fail if the
// connection is closed for good. The caller must close the connection of the View.
func Follow(ctx context.Context, e *cli.Env, fail context.CancelCauseFunc, command string, log *slog.Logger, keys ...string) (*View, <-chan observe.Event, error) {
	client, err := e.Connection.ConnectWithRetry("election-cli "+command, fail, log)
	if err != nil {
		return nil, nil, err
	}
	return FollowOn(ctx, client, e.Bucket, log, keys...)
}

// FollowOn is Follow on a connection that it closes if it fails.
func FollowOn(ctx context.Context, client *cli.Client, bucket string, log *slog.Logger, keys ...string) (*View, <-chan observe.Event, error) {
	warned := false
	for {
		v, events, err := startObserving(ctx, client, bucket, log, keys)
		if err == nil {
			return v, events, nil
		}
		// The server that should run the consumer may have failed after the bucket was opened.
		_, permanent := errors.AsType[permanentError](err)
		if !permanent && !errors.Is(err, nats.ErrPermissionViolation) && ctx.Err() == nil {
			if !warned {
				log.Warn("Elections cannot be observed yet, trying again", "bucket", bucket, "error", kv.Describe(err))
				warned = true
			}
			err = timeutil.Pause(ctx, cli.RetryInterval)
		}
		if err != nil {
			client.Conn.Close()
			return nil, nil, err
		}
	}
}

// permanentError is an error after which Follow does not retry.
type permanentError struct{ error }

// Unwrap returns the error.
func (e permanentError) Unwrap() error { return e.error }

// startObserving makes one attempt to observe the keys.
func startObserving(ctx context.Context, client *cli.Client, name string, log *slog.Logger, keys []string) (*View, <-chan observe.Event, error) {
	bucket, err := client.WaitForBucket(ctx, name, log)
	if err != nil {
		return nil, nil, permanentError{err}
	}
	v, err := New(ctx, client, bucket, election.WithLogger(log))
	if err != nil {
		return nil, nil, err
	}
	events, err := v.Observer.Observe(ctx, keys...)
	return v, events, err
}
