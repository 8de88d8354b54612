package semaphore_test

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
	"github.com/natscampaign/election/semaphore"
)

// However many processes run this, at most two import at once.
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

	imports, err := semaphore.New("host-1", "imports", 2, bucket, election.WithStandDown(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	var held []*semaphore.Slot
	for range 2 {
		slot, err := imports.Acquire(ctx)
		if err != nil {
			log.Fatal(err)
		}
		held = append(held, slot)
	}
	_, err = imports.TryAcquire(ctx)
	fmt.Println("a third at once:", errors.Is(err, semaphore.ErrFull))
	for _, slot := range held {
		if err := slot.Release(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: a third at once: true
}
