package group_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/test/natstest"
)

// Two members share four shards. When one has left, the other has taken over its shards.
func ExampleGroup_Run() {
	bucket, shutdown := connect()
	defer shutdown()

	shards := []string{"0", "1", "2", "3"}
	var members []*group.Group
	var ended []chan error
	for _, name := range []string{"web-1", "web-2"} {
		g, err := group.New(name, "shards", shards, bucket, group.WithElectionOptions(election.WithStandDown(time.Second)))
		if err != nil {
			log.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- g.Run(context.Background(), func(ctx context.Context, _ string, _ election.Term) error {
				<-ctx.Done() // the work on one shard: it must return soon after ctx ends
				return nil
			})
		}()
		members, ended = append(members, g), append(ended, done)
	}
	for len(members[0].Keys()) < 2 || len(members[1].Keys()) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("web-1 leads", len(members[0].Keys()), "shards")
	fmt.Println("web-2 leads", len(members[1].Keys()), "shards")

	members[0].Stop()
	fmt.Println("web-1 has left:", <-ended[0])
	for len(members[1].Keys()) < 4 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("web-2 leads", members[1].Keys())

	members[1].Stop()
	fmt.Println("web-2 has left:", <-ended[1])
	// Output:
	// web-1 leads 2 shards
	// web-2 leads 2 shards
	// web-1 has left: <nil>
	// web-2 leads [0 1 2 3]
	// web-2 has left: <nil>
}

// connect connects to NATS and makes a bucket for elections, as any program does.
func connect() (*election.Bucket, func()) {
	s, stop := natstest.RunServer()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second), nats.ReconnectBufSize(-1))
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	bucket, err := election.CreateBucket(context.Background(), js, election.BucketConfig{
		Name: "ELECTIONS", TTL: 20 * time.Second, Storage: jetstream.MemoryStorage,
	})
	check(err)
	return bucket, func() { nc.Close(); stop() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
