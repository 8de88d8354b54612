package look

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/observe"
)

// Follow returns the events of the keys on a connection until ctx ends. It waits for an unreachable server, and retries while the bucket
// cannot be observed; a missing bucket and a permission that the server refuses are errors. Follow closes the connection if it fails.
func Follow(ctx context.Context, client *cli.Client, name string, log *slog.Logger, keys ...string) (_ *View, _ <-chan observe.Event, err error) {
	defer func() {
		if err != nil {
			client.Conn.Close()
		}
	}()
	warned := false
	for {
		bucket, err := client.WaitForBucket(ctx, name, log)
		if err != nil {
			return nil, nil, err
		}
		// The server that should run the consumer may have failed after the bucket was opened.
		v, events, err := Observe(ctx, client, bucket, log, nil, keys...)
		if err == nil || errors.Is(err, nats.ErrPermissionViolation) || ctx.Err() != nil {
			return v, events, err
		}
		if !warned {
			log.Warn("Elections cannot be observed yet, trying again", "bucket", name, "error", kv.Describe(err))
			warned = true
		}
		if err := timeutil.Pause(ctx, cli.RetryInterval); err != nil {
			return nil, nil, err
		}
	}
}

// Observe returns the events of the keys until ctx ends, or of all keys of the bucket. It makes one attempt.
func Observe(ctx context.Context, client *cli.Client, bucket *election.Bucket, log *slog.Logger, observing func(error), keys ...string) (*View, <-chan observe.Event, error) {
	v, err := New(ctx, client, bucket, election.WithLogger(log), func(o *settings.Options) { o.Observing = observing })
	if err != nil {
		return nil, nil, err
	}
	events, err := v.Observer.Observe(ctx, keys...)
	return v, events, err
}
