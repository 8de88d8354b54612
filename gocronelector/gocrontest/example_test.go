package gocrontest

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/gocronelector"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The documentation of package gocronelector shows schedule.
func Example() {
	s, shutdown := natstest.RunServer() // an application connects to its own
	defer shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.ReconnectBufSize(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	candidate, err := election.NewElection("host-1", "jobs", bucket, election.WithSplay(0), election.OnWon(cancel))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(schedule(ctx, candidate, func() { fmt.Println("backup") }), candidate.State())
	// Output: <nil> unknown
}

// schedule runs a job every minute, in the process that leads, until ctx ends.
func schedule(ctx context.Context, candidate *election.Election, job func()) error {
	elector := gocronelector.New(candidate)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	if _, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(job)); err != nil {
		return err
	}
	scheduler.Start()
	context.AfterFunc(ctx, func() {
		_ = scheduler.Shutdown() // waits for jobs that run, ten seconds by default
		candidate.Stop()         // and then releases the key
	})
	return candidate.Start(context.WithoutCancel(ctx))
}
