package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// The leader's work runs under a context that ends when leadership does.
func ExampleElection_Run() {
	bucket, shutdown := connect()
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

// Start stands as a candidate until its context ends, in the manner of Choria's election.
func ExampleElection_Start() {
	bucket, shutdown := connect()
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

// All that is wrong is named at once.
func ExampleNewElection_invalid() {
	_, err := election.NewElection("", "my election", nil)
	fmt.Println(err)
	// Output:
	// invalid option: the name is empty: give each candidate a name of its own, such as its host's
	// invalid option: "my election" is not a key: use letters, digits, and - _ = / with single dots between them
	// invalid option: the bucket is nil: pass the one that JetStream.KeyValue returned
}

// A resource outside NATS refuses what an earlier leader sends late.
func ExampleTerm_Token() {
	created := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	earlier := election.Term{Bucket: created, Number: 9}
	later := election.Term{Bucket: created, Number: 10}
	fmt.Println(earlier.Token())
	fmt.Println(later.Token())
	fmt.Println(later.Token() > earlier.Token())
	// Output:
	// 18e997c544a70000-0000000000000009
	// 18e997c544a70000-000000000000000a
	// true
}

// A program that is configured by its environment, and has no connection yet.
func ExampleConnect() {
	s, shutdown := serve()
	defer shutdown()
	for variable, value := range map[string]string{
		"ELECTION_NAME": "host-1", "ELECTION_KEY": "scheduler", "ELECTION_TTL": "2s", "ELECTION_SPLAY": "0s",
	} {
		_ = os.Setenv(variable, value)
		defer func() { _ = os.Unsetenv(variable) }()
	}

	ctx := context.Background()
	cfg, err := election.FromEnv("ELECTION")
	if err != nil {
		log.Fatal(err)
	}
	c, err := election.Connect(ctx, cfg, nats.InProcessServer(s)) // without this option, to NATS_URL
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

// connect brings up a server with a bucket in this process, in place of a fleet's.
func connect() (bucket jetstream.KeyValue, shutdown func()) {
	s, stop := serve()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.ReconnectBufSize(-1))
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	bucket, err = js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{
		Bucket: "ELECTIONS", TTL: 2 * time.Second, LimitMarkerTTL: time.Second, History: 1, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		log.Fatal(err)
	}
	return bucket, func() { nc.Close(); stop() }
}

// serve brings up a server.
func serve() (s *server.Server, shutdown func()) {
	dir, err := os.MkdirTemp("", "election-example-")
	if err != nil {
		log.Fatal(err)
	}
	s, err = server.NewServer(&server.Options{JetStream: true, DontListen: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	return s, func() {
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
