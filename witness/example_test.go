//go:build linux || darwin

package witness_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/witness"
)

// dial connects to the server that NATS_URL names. The witness calls it in its own process, once this one leads.
func dial(context.Context) (*nats.Conn, error) {
	return nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
}

// A program has a witness: if its process is killed while it leads, another candidate leads within milliseconds.
func Example() {
	w, err := witness.Start(dial) // first in main: in the process of the witness it does not return
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	s, shutdown := natstest.RunServer()
	defer shutdown()
	ctx := context.Background()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second)) // or dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 20 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	e, err := election.NewElection("host-1", "scheduler", bucket, w.Option(), election.WithSplay(0), election.WithStandDown(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(_ context.Context, term election.Term) error {
		fmt.Println(term.Name, "leads", term.Key)
		return nil
	})
	fmt.Println(err)
	// Output:
	// host-1 leads scheduler
	// <nil>
}
