// Scheduler runs jobs at their times, as cron does, on the leader only.
//
// Start it on every host. The leader notes each run in a bucket before the job starts, so the next leader goes on where the last one
// stopped: no run is made twice, and a job that was due while nobody led runs late, once. The notes are fenced: the server refuses
// those of a leader that is late, which then does not run the job.
//
//	go run ./examples/scheduler                                   # three candidates on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/scheduler    # one candidate, until interrupted
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/robfig/cron/v3"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
	"github.com/natscampaign/election/fence"
)

// job is one line of the crontab.
type job struct {
	name, schedule string
	run            func(ctx context.Context, log *slog.Logger)
}

var jobs = []job{
	{"report", "@every 1s", func(_ context.Context, log *slog.Logger) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		log.Info("Job report", "heap_bytes", m.HeapAlloc, "goroutines", runtime.NumGoroutine())
	}},
	{"cleanup", "@every 3s", func(_ context.Context, log *slog.Logger) {
		debug.FreeOSMemory()
		log.Info("Job cleanup")
	}},
}

func main() {
	// A deployment sends SIGTERM: the context ends, the jobs end, the key is released, and another candidate leads milliseconds later.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.Rolling(ctx, log, candidate); err != nil { // in a program of yours: candidate(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// candidate campaigns until ctx ends, and runs the jobs while it leads.
func candidate(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "scheduler"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.JetStream.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "SCHEDULE"}); err != nil {
		return err
	}
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		log.Info("Leading", "name", name, "term", term.Number)
		runs, err := fence.OpenBucket(ctx, c.JetStream, "SCHEDULE", term) // no earlier leader notes a run from here on
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, len(jobs))
		for _, j := range jobs {
			go func() { ended <- j.keep(ctx, runs, log.With("name", name)) }()
		}
		for range jobs { // the key is released after the last job has returned
			err = errors.Join(err, <-ended)
			cancel()
		}
		return err
	})
}

// keep runs the job whenever it is due, until ctx ends.
func (j job) keep(ctx context.Context, runs *fence.Bucket, log *slog.Logger) error {
	schedule, err := cron.ParseStandard(j.schedule)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.name, err)
	}
	last := time.Now() // of a job that never ran
	switch note, err := runs.Get(ctx, j.name); {
	case err == nil:
		if last, err = time.Parse(time.RFC3339Nano, string(note.Value())); err != nil {
			return fmt.Errorf("job %s: its last run: %w", j.name, err)
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	for {
		due := schedule.Next(last)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(due)):
		}
		if last = time.Now(); last.Before(due) {
			last = due // the clock was set back
		}
		switch _, err := runs.Put(ctx, j.name, []byte(last.Format(time.RFC3339Nano))); {
		case errors.Is(err, fence.ErrFenced):
			return err // another candidate leads; Run campaigns again
		case err != nil && ctx.Err() == nil:
			log.Warn("Run skipped, as it could not be noted", "job", j.name, "error", err)
		case err == nil:
			j.run(ctx, log.With("at", last.Format(time.TimeOnly)))
		}
	}
}
