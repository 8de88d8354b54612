// Migration brings a database to its newest schema before a service starts, however many processes of the service start at once.
//
// Each process takes the lock; the first applies the steps that are missing, and the others find nothing left to do. The database here
// is a KV bucket, which holds the version of the schema and what the steps wrote. Each write is fenced by the token of the lock: a
// process that was paused, and lost the lock meanwhile, can change nothing any more. docs/FENCING.md has the same for SQL.
//
//	go run ./examples/migration                                   # three processes in one, on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/migration    # one process
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/mutex"
)

// step brings the database from one version to the next. A step may be applied again if the process died before the version was stored.
type step struct {
	name  string
	apply func(ctx context.Context, db *fence.Bucket) error
}

var steps = []step{
	{"create table users", put("users.schema", `{"columns": ["id", "name"]}`)},
	{"add column email", put("users.schema", `{"columns": ["id", "name", "email"]}`)},
	{"create index on email", put("users.index", `{"column": "email", "unique": true}`)},
}

func put(key, value string) func(context.Context, *fence.Bucket) error {
	return func(ctx context.Context, db *fence.Bucket) error {
		_, err := db.Put(ctx, key, []byte(value))
		return err
	}
}

func main() {
	// SIGTERM ends the context: the process stops after the step that it applies, and unlocks; the next one goes on from there.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.AtOnce(ctx, log, migrate); err != nil { // in a program of yours: migrate(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// migrate returns when the database has the newest schema.
func migrate(ctx context.Context, log *slog.Logger, name string) (err error) {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "migration"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.JetStream.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "DATABASE"}); err != nil {
		return err
	}
	lock, err := mutex.New(c.Name, c.Key, c.Bucket, c.Options()...)
	if err != nil {
		return err
	}
	log.Info("Waiting for the lock", "name", name)
	if err := lock.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }() // an error of Unlock: the lock was lost meanwhile
	log.Info("Locked", "name", name, "token", lock.Term().Token())

	db, err := fence.OpenBucket(ctx, c.JetStream, "DATABASE", lock.Term()) // first: no earlier holder of the lock writes from here on
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, db)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })() // the lock may be lost, too
	for ; version < len(steps); version++ {
		s := steps[version]
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("stopped at version %d: %w", version, err)
		}
		if err := s.apply(ctx, db); err != nil {
			return fmt.Errorf("step %d, %s: %w", version+1, s.name, err)
		}
		if _, err := db.Put(ctx, "version", []byte(strconv.Itoa(version+1))); err != nil {
			return fmt.Errorf("step %d, %s: %w", version+1, s.name, err)
		}
		log.Info("Step applied", "name", name, "step", s.name, "version", version+1)
	}
	log.Info("Schema is current", "name", name, "version", version)
	return nil
}

// schemaVersion returns the version of the database, 0 for an empty one.
func schemaVersion(ctx context.Context, db *fence.Bucket) (int, error) {
	stored, err := db.Get(ctx, "version")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(stored.Value()))
}
