package session_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

// One process leads many keys by one session. Where an election has election.NewElection, a session has Election.
func Example() {
	server, shutdown := natstest.RunServer() // an application connects to its own
	defer shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(server), nats.Timeout(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := session.Open(ctx, js, session.Config{Bucket: "TENANTS", Name: "worker-1", Storage: jetstream.MemoryStorage})
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"red", "green", "blue"} {
		e, err := s.Election(tenant)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			_ = e.Run(context.Background(), func(ctx context.Context, t election.Term) error {
				<-ctx.Done() // the work
				return nil
			})
		}()
	}
	fmt.Println(s.Status().Keys, "elections, open:", s.Status().Open)
	if err := s.Close(ctx); err != nil { // one write releases all keys
		log.Fatal(err)
	}
	// Output:
	// 3 elections, open: true
}
