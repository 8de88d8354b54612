package admin_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/natstest"
)

// An operator asks who the candidates are, and moves leadership to one of them, in order.
func Example() {
	bucket, shutdown := connect(20 * time.Second)
	defer shutdown()
	ctx := context.Background()
	operator, err := admin.New(bucket)
	must(err)

	for i, name := range []string{"host-1", "host-2"} {
		candidate, err := election.NewElection(name, "scheduler", bucket, election.WithSplay(0), election.WithStandDown(time.Second))
		must(err)
		go func() { must(candidate.Start(ctx)) }()       // on a host each, usually
		defer func() { must(candidate.Shutdown(ctx)) }() // releases the key
		await(ctx, operator, "host-1 leader", i+1)       // the first comes to lead, and the second to stand by
	}
	fmt.Println("before:", await(ctx, operator, "host-1 leader", 2))
	must(operator.Transfer(ctx, "scheduler", "host-2"))
	fmt.Println("after:", await(ctx, operator, "host-2 leader", 2))
	// Output:
	// before: [host-1 leader host-2 candidate]
	// after: [host-2 leader host-1 candidate]
}

// await returns the leader and the candidates that would answer a vacancy, once that one leads and they are that many.
func await(ctx context.Context, operator *admin.Admin, leader string, count int) []string {
	for {
		candidates, err := operator.Candidates(ctx, "scheduler")
		must(err)
		var list []string
		for _, c := range candidates {
			if c.State == election.LeaderState || c.State == election.CandidateState && c.Ready {
				list = append(list, fmt.Sprint(c.Name, " ", c.State))
			}
		}
		if len(list) == count && list[0] == leader {
			return list
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A check finds what is wrong with a bucket, and says what to do about it.
func ExampleCheck() {
	bucket, shutdown := connect(time.Second)
	defer shutdown()

	findings, err := admin.Check(context.Background(), bucket)
	must(err)
	for _, f := range findings {
		if f.Severity >= admin.SeverityWarning {
			fmt.Println(f.Severity, f.Code)
			fmt.Println(f.Message)
		}
	}
	// Output:
	// warning ttl-short
	// the bucket's TTL is 1s, and servers are up to 400ms late to expire a key: a short disturbance ends a term
}

// connect connects to NATS and makes a bucket for elections, as any program does.
func connect(ttl time.Duration) (*election.Bucket, func()) {
	s, stop := natstest.RunServer()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(2*time.Second))
	must(err)
	js, err := jetstream.New(nc)
	must(err)
	bucket, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "ELECTIONS", TTL: ttl})
	must(err)
	return bucket, func() { nc.Close(); stop() }
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
