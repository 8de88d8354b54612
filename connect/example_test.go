package connect_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/natstest"
)

// A program reads its configuration from its environment, connects, and campaigns.
func Example() {
	s, shutdown := natstest.RunServer()
	defer shutdown()
	defer setenv(map[string]string{
		"ELECTION_NAME": "host-1", "ELECTION_KEY": "scheduler", "ELECTION_TTL": "20s", "ELECTION_STAND_DOWN": "1s", "ELECTION_SPLAY": "0s",
	})()

	ctx := context.Background()
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		log.Fatal(err)
	}
	c, err := connect.Connect(ctx, cfg, nats.InProcessServer(s)) // without this option, to NATS_URL
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
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

// A printed configuration shows no secrets.
func ExampleFromEnv() {
	defer setenv(map[string]string{
		"CRON_NAME": "host-1", "CRON_KEY": "nightly", "CRON_STAND_DOWN": "2s",
		"NATS_URL": "nats://nats.example.com", "NATS_USER": "cron", "NATS_PASSWORD": "correct horse",
	})()

	cfg, err := connect.FromEnv("CRON")
	fmt.Println(cfg, err)
	// Output:
	// {Name:host-1 Key:nightly URL:nats://nats.example.com User:cron Password:(hidden) StandDown:2s} <nil>
}

// The error names every variable that cannot be used, and says how to fix it.
func ExampleFromEnv_invalid() {
	defer setenv(map[string]string{"ELECTION_NAME": "host-1", "ELECTION_KEY": "my election", "ELECTION_TTL": "30"})()

	_, err := connect.FromEnv("")
	fmt.Println(err)
	// Output:
	// ELECTION_KEY: invalid option: "my election" is not a key: use letters, digits, and - _ = / with single dots between them
	// ELECTION_TTL: invalid option: "30" is not a duration: write a number with its unit, such as 750ms or 30s
}

// A program that has its configuration elsewhere fills in a Config itself.
func ExampleConnect() {
	s, shutdown := natstest.RunServer()
	defer shutdown()

	c, err := connect.Connect(context.Background(), connect.Config{Name: "host-1", Key: "scheduler", Bucket: "LEADERS"}, nats.InProcessServer(s))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options(election.WithPriority(10))...)
	if err != nil {
		log.Fatal(err)
	}
	_, err = e.Leader(context.Background())
	fmt.Println(c.Bucket.Bucket(), err)
	// Output:
	// LEADERS no leader
}

// setenv sets variables, and returns a function that removes them.
func setenv(values map[string]string) (restore func()) {
	for variable, value := range values {
		_ = os.Setenv(variable, value)
	}
	return func() {
		for variable := range values {
			_ = os.Unsetenv(variable)
		}
	}
}
