package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/observe"
)

// docs/MIGRATING.md shows these examples as "after": a test compares them.

func Example_fromChoria() {
	bucket, shutdown := connect("provisioner")
	defer shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	startWork := func() { fmt.Println("working"); cancel() }
	stopWork := func() { fmt.Println("stopped") }

	e, err := election.NewElection("host-1.example.net", "provisioner", bucket,
		election.OnWon(startWork),
		election.OnLost(stopWork),
		election.WithBackoff(election.RampBackoff(20*time.Second)),
		election.WithSplay(0),
		election.WithPlainValue()) // while candidates of Choria, or its tools, look at the bucket
	if err != nil {
		log.Fatal(err)
	}
	err = e.Start(ctx)
	fmt.Println(err)
	// Output:
	// working
	// stopped
	// <nil>
}

func Example_fromAsyncjobs() {
	bucket, shutdown := connect("task_scheduler")
	defer shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	enqueue := func() { fmt.Println("enqueued"); cancel() }

	e, err := election.NewElection("scheduler-1", "task_scheduler", bucket, election.WithSplay(0))
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			if e.IsLeader() { // by the clock, and so never out of date
				enqueue()
				return
			}
		}
	}()
	err = e.Start(ctx)
	fmt.Println(err)
	// Output:
	// enqueued
	// <nil>
}

func Example_fromClientGo() {
	bucket, shutdown := connect("controller")
	defer shutdown()
	ctx, stop := context.WithCancel(context.Background())
	reconcile := func(context.Context) error { fmt.Println("reconciling"); stop(); return nil }

	ctx, cancel := context.WithCancel(ctx)
	e, err := election.NewElection("pod-1", "controller", bucket, election.WithSplay(0), election.OnLost(cancel))
	if err != nil {
		log.Fatal(err)
	}
	observer, err := observe.New(bucket)
	if err != nil {
		log.Fatal(err)
	}
	events, err := observer.Observe(ctx, "controller")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for event := range events {
			if event.Kind == observe.Leading {
				log.Printf("%s leads now", event.Leader.Name)
			}
		}
	}()
	err = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		return reconcile(ctx) // returns when ctx ends
	})
	fmt.Println(err) // exit here, and not in OnLost: the key is released by now
	// Output:
	// reconciling
	// <nil>
}

func Example_fromEtcd() {
	bucket, shutdown := connect("shard-7")
	defer shutdown()
	ctx := context.Background()
	store := func(_ context.Context, token string) error {
		fmt.Println("stored with a token:", token != "")
		return nil
	}

	e, err := election.NewElection("node-1", "shard-7", bucket, election.WithSplay(0))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, term election.Term) error {
		return store(ctx, term.Token()) // in place of the key's create revision
	}) // returns when the work does, and has resigned
	fmt.Println(err)
	// Output:
	// stored with a token: true
	// <nil>
}

func Example_fromRedis() {
	bucket, shutdown := connect("reports")
	defer shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	sendReports := func(ctx context.Context) { fmt.Println("sending:", ctx.Err() == nil); cancel() }

	e, err := election.NewElection("web-1:10.0.0.7:4711", "reports", bucket,
		election.WithSplay(0),
		election.OnWon(func() { log.Print("became the leader") }),
		election.OnLost(func() { log.Print("no longer the leader") }))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
		sendReports(ctx)
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// sending: true
	// <nil>
}

func Example_fromRedsync() {
	bucket, shutdown := connect("migrate")
	defer shutdown()
	ctx := context.Background()
	migrate := func(ctx context.Context) error { fmt.Println("migrating"); return ctx.Err() }

	m, err := mutex.New("web-1", "migrate", bucket)
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	err = migrate(m.Context()) // no Extend: the lease is renewed until the lock is lost, and then the context ends
	if err := m.Unlock(); err != nil {
		log.Print(err) // it was lost before
	}
	fmt.Println(err)
	// Output:
	// migrating
	// <nil>
}

func Example_fromPostgreSQL() {
	bucket, shutdown := connect("refresh")
	defer shutdown()
	ctx := context.Background()
	refresh := func(ctx context.Context) { fmt.Println("refreshing:", ctx.Err() == nil) }

	m, err := mutex.New("worker-1", "refresh", bucket)
	if err != nil {
		log.Fatal(err)
	}
	switch err := m.TryLock(ctx); {
	case errors.Is(err, mutex.ErrLocked):
		return // somebody else is at it
	case err != nil:
		log.Fatal(err)
	}
	refresh(m.Context())
	if err := m.Unlock(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// refreshing: true
}

func TestMigrationGuideShowsTheExamples(t *testing.T) {
	g := NewWithT(t)
	guide, err := os.ReadFile("docs/MIGRATING.md")
	g.Expect(err).NotTo(HaveOccurred())
	source, err := os.ReadFile("migrating_test.go")
	g.Expect(err).NotTo(HaveOccurred())
	examples := trimLines(string(source))
	blocks := regexp.MustCompile("(?s)\nAfter[^\n]*\n\n```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	g.Expect(blocks).To(HaveLen(strings.Count(string(source), "\nfunc Example_")))
	for _, block := range blocks {
		g.Expect(examples).To(ContainSubstring(trimLines(block[1])))
	}
}

// trimLines removes the blanks at the beginning and end of each line.
func trimLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
