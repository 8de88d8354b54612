package mutex_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

// Of all processes that run this, one at a time migrates the database.
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
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "LOCKS", TTL: 20 * time.Second})
	if err != nil {
		log.Fatal(err)
	}

	m, err := mutex.New("host-1", "migration", bucket, election.WithStandDown(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	migrate(m.Context(), m.Term().Token())
	if err := m.Unlock(); err != nil { // the lock was lost meanwhile, and another process may have migrated too
		log.Fatal(err)
	}
	// Output: migrated: true
}

// migrate stops when ctx ends, and has the database refuse a lower token than it has seen.
func migrate(ctx context.Context, token string) {
	fmt.Println("migrated:", ctx.Err() == nil && token != "")
}
