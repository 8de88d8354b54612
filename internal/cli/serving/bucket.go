package serving

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
)

// Bucket serves the status page and metrics about the elections of a bucket on address, or only about the one of the key unless that is empty, until
// ctx ends. The page keeps the expected elections, though nobody ever led them. Bucket waits for an unreachable server; a missing bucket is an error.
// The web configuration file may be empty.
func Bucket(ctx context.Context, e *cli.Env, address, webConfig, key string, expected []string) error {
	return e.RunLasting(ctx, slog.LevelInfo, terminal.DroppedLines, func(ctx context.Context, l cli.Lasting) error {
		log, registry := slog.New(l.Log), newRegistry()
		page := newBucketPage(key, expected, log)
		defer page.Stop()
		prometheus.WrapRegistererWith(prometheus.Labels{"bucket": e.Bucket}, registry).MustRegister(page.Metrics())
		servers, err := serve([]endpoint{statusEndpoint("--serve", address, page), metricsEndpoint("--serve", address, registry)}, webConfig, log)
		if err != nil {
			return err
		}
		defer servers.Stop()
		client, err := e.Connection.ConnectWithRetry("election-cli dashboard", l.Fail, log)
		if err != nil {
			return err
		}
		defer client.Conn.Close()
		bucket, err := client.WaitForBucket(ctx, e.Bucket, log)
		if err != nil {
			return cli.IgnoreIfDone(ctx, err)
		}
		page.Follow(ctx, client, bucket, nil)
		<-ctx.Done()
		return nil
	})
}
