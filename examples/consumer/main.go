// Consumer adds up the orders of a queue, each exactly once, whichever candidate leads and whatever the network does.
//
// Every process takes orders. The leader alone consumes them: it stores the new total together with the number of the last order in it,
// and then acknowledges the order. An order that comes again, because the leader stopped in between, is recognised by its number. The
// writes are fenced: once a newer leader has begun, the server refuses a total that an older one sends, however late.
//
//	go run ./examples/consumer                                   # three candidates on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/consumer    # one candidate, until interrupted
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
	"github.com/natscampaign/election/fence"
)

// total is what the leader stores. The queue numbers the orders from 1, so that Orders equals Last if each counts once.
type total struct {
	Orders, Last uint64 // how many there are in it, and the number of the last of them
	Amount       int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.Rolling(ctx, log, candidate); err != nil { // in a program of yours: candidate(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// candidate takes orders until ctx ends, campaigns, and adds the orders up while it leads.
func candidate(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "consumer"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	queue, err := prepare(ctx, c.JetStream)
	if err != nil {
		return err
	}
	go takeOrders(ctx, log, c.JetStream)

	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		totals, err := fence.OpenBucket(ctx, c.JetStream, "TOTALS", term) // first: no older leader writes from here on
		if err != nil {
			return err
		}
		var t total // so this is all that older leaders will ever have written
		stored, err := totals.Get(ctx, "orders")
		if err == nil {
			err = json.Unmarshal(stored.Value(), &t)
		}
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
		log.Info("Counting from here", "name", name, "term", term.Number, "total", t)
		defer func() { log.Info("Counted so far", "name", name, "term", term.Number, "total", t) }()
		for {
			order, err := queue.Next(jetstream.FetchContext(ctx))
			if errors.Is(err, nats.ErrTimeout) {
				continue // the queue is empty
			}
			if err != nil {
				return err
			}
			if t, err = count(ctx, totals, t, order); err != nil {
				_ = order.Nak() // the order stays in the queue, for the leader
				return err      // if ErrFenced, Run campaigns again
			}
		}
	})
}

// count returns the total with an order. It stores the total before it acknowledges the order.
func count(ctx context.Context, totals *fence.Bucket, t total, order jetstream.Msg) (total, error) {
	about, err := order.Metadata()
	if err != nil {
		return t, err
	}
	if about.Sequence.Stream > t.Last { // it is not there again because an acknowledgement was lost
		amount, err := strconv.Atoi(string(order.Data()))
		if err != nil {
			return t, order.Term() // no amount: drop the order
		}
		next := total{t.Orders + 1, about.Sequence.Stream, t.Amount + amount}
		value, err := json.Marshal(next)
		if err != nil {
			return t, err
		}
		if _, err := totals.Put(ctx, "orders", value); err != nil {
			return t, err
		}
		t = next
	}
	return t, order.DoubleAck(ctx)
}

// prepare makes the queue and the bucket of totals, unless they exist.
func prepare(ctx context.Context, js jetstream.JetStream) (jetstream.Consumer, error) {
	if _, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "TOTALS"}); err != nil {
		return nil, err
	}
	orders := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}, Retention: jetstream.WorkQueuePolicy}
	queue, err := js.CreateOrUpdateStream(ctx, orders)
	if err != nil {
		return nil, err
	}
	return queue.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "total", AckWait: 5 * time.Second, MaxAckPending: 1, // one at a time, so that an order that comes again comes before the next
	})
}

// takeOrders puts an order into the queue ten times a second.
func takeOrders(ctx context.Context, log *slog.Logger, js jetstream.JetStream) {
	for amount := 1; ctx.Err() == nil; amount++ {
		if _, err := js.Publish(ctx, "orders", []byte(strconv.Itoa(amount))); err != nil && ctx.Err() == nil {
			log.Warn("Order not taken", "error", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
