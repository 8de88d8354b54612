package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

// A leader consumes amounts from a queue and publishes their sum. Each amount counts once, whichever candidate leads and whatever the network
// does. Lines with "fence:" are what this costs.
func Example() {
	js, candidate, shutdown := connect("host-1")
	defer shutdown()
	ctx := context.Background()

	work := func(ctx context.Context, term election.Term) error {
		results, err := fence.OpenStream(ctx, js, "RESULTS", "results.epoch", term) // fence: no older leader writes from here on
		if err != nil {
			return err
		}
		sum, done, err := lastResult(ctx, js) // fence: so this is all that they will ever have written
		if err != nil {
			return err
		}
		queue, err := js.Consumer(ctx, "AMOUNTS", "adder")
		if err != nil {
			return err
		}
		for {
			m, err := queue.Next(jetstream.FetchContext(ctx))
			if errors.Is(err, nats.ErrTimeout) {
				continue // the queue is empty
			}
			if err != nil {
				return err
			}
			number, amount := read(m)
			if number > done { // fence: it is not there again because an acknowledgement was lost
				result := nats.NewMsg("results.sum")
				result.Data = strconv.AppendUint(nil, sum+amount, 10)
				result.Header.Set(jetstream.MsgIDHeader, strconv.FormatUint(number, 10)) // fence: for lastResult, and duplicates
				if _, err := results.PublishMsg(ctx, result); err != nil {
					return err // fence: if ErrFenced, Run campaigns again; the amount stays in the queue for the one who leads
				}
				sum, done = sum+amount, number
				fmt.Println("amount", amount, "makes", sum)
			}
			if err := m.DoubleAck(ctx); err != nil { // only after the result is stored
				return err
			}
			if sum == 60 {
				return errors.New("nothing left to do")
			}
		}
	}
	err := candidate.Run(ctx, work)
	fmt.Println(err)
	// Output:
	// amount 10 makes 10
	// amount 20 makes 30
	// amount 30 makes 60
	// nothing left to do
}

// lastResult returns the last sum and the number of the last amount in it.
func lastResult(ctx context.Context, js jetstream.JetStream) (sum, done uint64, err error) {
	stream, err := js.Stream(ctx, "RESULTS")
	if err != nil {
		return 0, 0, err
	}
	last, err := stream.GetLastMsgForSubject(ctx, "results.sum")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	sum, err = strconv.ParseUint(string(last.Data), 10, 64)
	if err != nil {
		return 0, 0, err
	}
	done, err = strconv.ParseUint(last.Header.Get(jetstream.MsgIDHeader), 10, 64)
	return sum, done, err
}

// read returns what a message of the queue holds, and its number there.
func read(m jetstream.Msg) (number, amount uint64) {
	about, err := m.Metadata()
	check(err)
	amount, err = strconv.ParseUint(string(m.Data()), 10, 64)
	check(err)
	return about.Sequence.Stream, amount
}

// A handle is of no use when its term is over.
func ExampleOpenStream() {
	js, candidate, shutdown := connect("host-1")
	defer shutdown()
	ctx := context.Background()

	var results *fence.Stream
	err := candidate.Run(ctx, func(ctx context.Context, term election.Term) (err error) {
		results, err = fence.OpenStream(ctx, js, "RESULTS", "results.epoch", term)
		if err != nil {
			return err // fence.ErrFenced: a newer term has begun
		}
		_, err = results.Publish(ctx, "results.sum", []byte("1"))
		return err
	})
	check(err)
	_, err = results.Publish(ctx, "results.sum", []byte("2")) // too late
	fmt.Println(errors.Is(err, fence.ErrFenced))
	// Output: true
}

// A bucket is written as any other, for a term.
func ExampleOpenBucket() {
	js, candidate, shutdown := connect("host-1")
	defer shutdown()
	ctx := context.Background()
	_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "STATE", Storage: jetstream.MemoryStorage})
	check(err)

	err = candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
		state, err := fence.OpenBucket(ctx, js, "STATE", term) // first, so that what is read next stays so
		if err != nil {
			return err
		}
		revision, err := state.Create(ctx, "cursor", []byte("17"))
		if err != nil {
			return err
		}
		_, err = state.Update(ctx, "cursor", []byte("18"), revision)
		if err != nil {
			return err
		}
		cursor, err := state.Get(ctx, "cursor")
		if err == nil {
			fmt.Println(string(cursor.Value()))
		}
		return err
	})
	check(err)
	// Output: 18
}

// A receiver outside of NATS, to which leaders send their tokens.
func ExampleGuard() {
	created := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	earlier := election.Term{BucketCreated: created, Number: 9}
	later := election.Term{BucketCreated: created, Number: 10}

	var guard fence.Guard
	fmt.Println(guard.Admit(earlier.Token()))
	fmt.Println(guard.Admit(later.Token()))
	fmt.Println(guard.Admit(earlier.Token())) // sent before the later term began, perhaps
	// Output:
	// <nil>
	// <nil>
	// fence: fenced off: token 18e997c544a70000-0000000000000009 is older than 18e997c544a70000-000000000000000a, which was seen before
}

// connect brings up a server in this process, in place of a fleet's, with three amounts in a queue, and a candidate.
func connect(name string) (js jetstream.JetStream, candidate *election.Election, shutdown func()) {
	s, stop := natstest.RunServer()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(20*time.Second))
	check(err)
	js, err = jetstream.New(nc)
	check(err)
	ctx := context.Background()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Storage: jetstream.MemoryStorage})
	check(err)
	queue, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "AMOUNTS", Subjects: []string{"amounts"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage,
	})
	check(err)
	// One at a time, so that the amounts come in their order also when they come again.
	_, err = queue.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "adder", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1})
	check(err)
	for _, amount := range []string{"10", "20", "30"} {
		_, err = js.Publish(ctx, "amounts", []byte(amount))
		check(err)
	}
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "ELECTIONS", TTL: 20 * time.Second, Storage: jetstream.MemoryStorage})
	check(err)
	candidate, err = election.NewElection(name, "adder", bucket, election.WithSplay(0), election.WithStandDown(time.Second))
	check(err)
	return js, candidate, func() { nc.Close(); stop() }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
