package election_test

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
)

// The context of the leader's work ends when leadership ends.
func ExampleElection_Run() {
	bucket, shutdown := connect("scheduler")
	defer shutdown()

	e, err := election.NewElection("host-1", "scheduler", bucket, election.WithSplay(0))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(context.Background(), func(_ context.Context, term election.Term) error {
		fmt.Println(term.Name, "leads", term.Key)
		fmt.Println("still valid:", term.Valid())
		return errors.New("nothing left to do") // an error or nil: the key is released
	})
	fmt.Println(err)
	// Output:
	// host-1 leads scheduler
	// still valid: true
	// nothing left to do
}

// Start campaigns until its context ends, as Choria's election does.
func ExampleElection_Start() {
	bucket, shutdown := connect("scheduler")
	defer shutdown()

	ctx, cancel := context.WithCancel(context.Background())
	e, err := election.NewElection("host-1", "scheduler", bucket,
		election.WithSplay(0),
		election.OnWon(func() { fmt.Println("won"); cancel() }),
		election.OnLost(func() { fmt.Println("lost") }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Start(ctx), e.IsLeader())
	// Output:
	// won
	// lost
	// <nil> false
}

// The error names every problem.
func ExampleNewElection_invalid() {
	_, err := election.NewElection("", "my election", nil)
	fmt.Println(err)
	// Output:
	// invalid option: the name is empty: give each candidate a name of its own, such as its host's
	// invalid option: "my election" is not a key: use letters, digits, and - _ = / with single dots between them
	// invalid option: the bucket is nil: pass the one that OpenBucket, CreateBucket or JetStream.KeyValue returned
}

// A resource outside NATS refuses a late write of an earlier leader by its token.
func ExampleTerm_Token() {
	created := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	earlier := election.Term{BucketCreated: created, Number: 9}
	later := election.Term{BucketCreated: created, Number: 10}
	fmt.Println(earlier.Token())
	fmt.Println(later.Token())
	fmt.Println(later.Token() > earlier.Token())
	// Output:
	// 18e997c544a70000-0000000000000009
	// 18e997c544a70000-000000000000000a
	// true
}

// connect starts a server with a bucket in this process. A previous leader of the key has just resigned, so that a candidate leads at
// once.
func connect(key string) (bucket *election.Bucket, shutdown func()) {
	s, stop := natstest.RunServer()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second), nats.ReconnectBufSize(-1))
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	bucket, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 20 * time.Second, Storage: jetstream.MemoryStorage})
	if err != nil {
		log.Fatal(err)
	}
	previous, err := election.NewElection("host-0", key, bucket, election.WithSplay(0), election.WithStandDown(0))
	if err != nil {
		log.Fatal(err)
	}
	if err := previous.Run(ctx, func(context.Context, election.Term) error { return nil }); err != nil {
		log.Fatal(err)
	}
	return bucket, func() { nc.Close(); stop() }
}
