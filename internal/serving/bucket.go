package serving

import (
	"context"
	"log/slog"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/statuspage"
	"github.com/natscampaign/election/internal/terminal"
)

// Bucket serves the status page and metrics about the elections of a bucket on address, or only about the one of the key unless that is
// empty, until ctx ends. It waits for an unreachable server; a missing bucket is an error.
func Bucket(ctx context.Context, e *cli.Env, address, key string) error {
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	stderr := terminal.NewQueue(e.Stderr, terminal.DroppedLines, fail)
	defer stderr.Close()
	log := slog.New(terminal.NewLogHandler(stderr, terminal.StyleFor(e.Stderr), slog.LevelInfo))
	page, err := statuspage.ServeBucket(address, key, newRegistry(), log)
	if err != nil {
		return err
	}
	defer page.Stop()
	client, err := e.Connection.ConnectWithRetry("election-cli dashboard", fail, log)
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	bucket, err := client.WaitForBucket(ctx, e.Bucket, log)
	if err == nil {
		page.Follow(ctx, client, bucket, nil)
		<-ctx.Done()
	}
	if user.Err() != nil {
		return nil // the normal end
	}
	if err == nil {
		err = context.Cause(ctx) // fail ended the command, not the user
	}
	return err
}
