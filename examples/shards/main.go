// Shards spreads the work on eight shards evenly over the members of a fleet.
//
// Start it on every host. Each shard is worked on by one member at a time. When members join or leave, as few shards move as an even
// spread takes, each after the work on it has ended.
//
//	go run ./examples/shards                                   # three members on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/shards    # one member, until interrupted
package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
	"github.com/natscampaign/election/group"
)

var shards = []string{"0", "1", "2", "3", "4", "5", "6", "7"}

func main() {
	// SIGTERM ends the context: the member hands its shards over, one by one, and leaves.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.Rolling(ctx, log, member); err != nil { // in a program of yours: member(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// member takes part in the group until ctx ends.
func member(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, "", log // a group has a key for each shard
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	// The group logs all that happens in eight elections: its warnings are enough here.
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := group.New(c.Name, cmp.Or(os.Getenv("ELECTION_KEY"), "shards"), shards, c.Bucket, group.WithLogger(warnings))
	if err != nil {
		return err
	}
	return g.Run(ctx, func(ctx context.Context, shard string, term election.Term) error {
		log.Info("Working", "name", name, "shard", shard, "term", term.Number, "leads", g.Keys())
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for items := 0; ; items++ { // the work on one shard: it must return soon after ctx ends
			select {
			case <-ctx.Done():
				log.Info("Worked", "name", name, "shard", shard, "term", term.Number, "items", items)
				return nil
			case <-ticks.C:
			}
		}
	})
}
