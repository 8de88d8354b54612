package gocronelector_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/gocronelector"
	"github.com/natscampaign/election/internal/test/natstest"
)

// gocron asks the Elector when a job is due: gocron.NewScheduler(gocron.WithDistributedElector(elector)).
func Example() {
	s, shutdown := natstest.RunServer() // an application connects to its own
	defer shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second), nats.ReconnectBufSize(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 20 * time.Second})
	if err != nil {
		log.Fatal(err)
	}

	won := make(chan struct{})
	e, err := election.NewElection("host-1", "jobs", bucket, election.WithSplay(0), election.WithStandDown(time.Second), election.OnWon(func() { close(won) }))
	if err != nil {
		log.Fatal(err)
	}
	elector := gocronelector.New(e)
	fmt.Println("before it campaigns:", elector.IsLeader(ctx)) // an error: the job does not run here
	go func() { _ = e.Start(ctx) }()
	<-won
	fmt.Println("while it leads:", elector.IsLeader(ctx))
	fmt.Println("stopped:", e.Shutdown(ctx))
	fmt.Println("and then:", elector.IsLeader(ctx))
	// Output:
	// before it campaigns: not the leader: unknown
	// while it leads: <nil>
	// stopped: <nil>
	// and then: not the leader: unknown
}
