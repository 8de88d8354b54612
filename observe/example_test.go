package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

// A program that does not campaign finds the leader, and learns of each change.
func Example() {
	bucket, shutdown := connect()
	defer shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	observer, err := observe.New(bucket)
	check(err)
	_, err = observer.Leader(ctx, "scheduler")
	fmt.Println("before:", errors.Is(err, election.ErrNoLeader))

	events, err := observer.Observe(ctx, "scheduler") // without keys: all elections of the bucket
	check(err)
	candidate, err := election.NewElection("host-1", "scheduler", bucket, election.WithSplay(0), election.WithStandDown(time.Second))
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- candidate.Start(ctx) }() // on another host, usually
	for event := range events {                   // until ctx ends
		switch event.Kind {
		case observe.Leading:
			leader, err := observer.Leader(ctx, event.Key)
			check(err)
			fmt.Println(leader.Name, "leads", leader.Key, "with the token of the event:", leader.Token() == event.Leader.Token())
			candidate.Stop()
		case observe.Released:
			fmt.Println(event.Leader.Name, "released", event.Key)
			cancel()
		}
	}
	check(<-ended) // only then may the connection be closed
	// Output:
	// before: true
	// host-1 leads scheduler with the token of the event: true
	// host-1 released scheduler
}

// connect connects to NATS and makes a bucket for elections, as any program does.
func connect() (*election.Bucket, func()) {
	s, stop := natstest.RunServer()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second), nats.ReconnectBufSize(-1))
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	bucket, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "ELECTIONS", TTL: 20 * time.Second})
	check(err)
	return bucket, func() { nc.Close(); stop() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
