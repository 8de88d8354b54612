// Partitions consumes the four partitions of a stream, each in order, at least once, and by one member of a fleet at a time.
//
// The stream assigns each order to a partition by its customer, so that the orders of one customer stay in order. The leader of a partition
// reads on from the position that is stored, and stores the new position together with what it has made of the orders. These writes are
// fenced: once a newer leader of the partition has begun, the server refuses what an older one sends, however late. A member that joins
// is handed its share of the partitions; one that leaves hands them over.
//
//	go run ./examples/partitions                                   # three members on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/partitions    # one member, until interrupted
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/natscampaign/election/group"
)

// partitions are the keys of the group. Their number belongs to the stream: to change it, stop all members first.
var partitions = []string{"0", "1", "2", "3"}

// state is what the leader of a partition stores: what it has made of the orders, and where to read on.
type state struct {
	Position uint64         // the sequence in the stream of the last order in it
	Orders   int            // how many orders are in it
	Amounts  map[string]int // by customer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.Rolling(ctx, log, member); err != nil { // in a program of yours: member(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// member takes orders until ctx ends, and consumes its share of the partitions.
func member(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, "", log // a group has a key for each partition
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	orders, err := prepare(ctx, c.JetStream)
	if err != nil {
		return err
	}
	go takeOrders(ctx, log, c.JetStream)

	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := group.New(c.Name, cmp.Or(os.Getenv("ELECTION_KEY"), "partitions"), partitions, c.Bucket, group.WithLogger(warnings))
	if err != nil {
		return err
	}
	return g.Run(ctx, func(ctx context.Context, partition string, term election.Term) error {
		states, err := fence.OpenBucket(ctx, c.JetStream, "PARTITIONS", term) // first: no older leader of this partition writes from here on
		if err != nil {
			return err // if ErrFenced, the member campaigns again
		}
		s := state{Amounts: map[string]int{}} // so this is all that older leaders will ever have written
		stored, err := states.Get(ctx, partition)
		if err == nil {
			err = json.Unmarshal(stored.Value(), &s)
		}
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
		log.Info("Consuming", "name", name, "partition", partition, "term", term.Number, "position", s.Position, "orders", s.Orders)
		defer func() {
			log.Info("Consumed", "name", name, "partition", partition, "term", term.Number, "position", s.Position, "orders", s.Orders)
		}()
		return consume(ctx, orders, partition, &s, func(s state) error {
			value, err := json.Marshal(s)
			if err == nil {
				_, err = states.Put(context.WithoutCancel(ctx), partition, value) // also if ctx ends meanwhile: else nobody would know whether it is stored
			}
			return err
		})
	})
}

// consume adds the orders of a partition to its state, in order, from the one after its position on, until ctx ends. It stores the state after
// each batch. What was not stored is read again, by this leader or the next: at least once, and once in the state.
func consume(ctx context.Context, orders jetstream.Stream, partition string, s *state, store func(state) error) error {
	consumer, err := orders.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"orders." + partition + ".>"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.Position + 1,
	})
	for err == nil && ctx.Err() == nil {
		var batch jetstream.MessageBatch
		if batch, err = consumer.Fetch(100, jetstream.FetchMaxWait(200*time.Millisecond)); err != nil {
			break
		}
		next, before := *s, s.Orders
		for m := range batch.Messages() {
			if err = next.add(m); err != nil {
				return err
			}
		}
		if err = batch.Error(); errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
			err = nil // there were fewer
		}
		if next.Orders == before || ctx.Err() != nil {
			continue
		}
		if err == nil {
			err = store(next)
		}
		if err == nil {
			*s = next
		}
	}
	if ctx.Err() != nil {
		return nil // the partition is handed over
	}
	return err
}

// add adds an order.
func (s *state) add(m jetstream.Msg) error {
	about, err := m.Metadata()
	if err != nil {
		return err
	}
	amount, err := strconv.Atoi(string(m.Data()))
	if err != nil {
		return fmt.Errorf("the order %d has no amount: %w", about.Sequence.Stream, err)
	}
	s.Position = about.Sequence.Stream
	s.Orders++
	s.Amounts[m.Subject()] += amount
	return nil
}

// prepare makes the stream of orders and the bucket of states, unless they exist. The stream stores an order for a customer under the
// subject of the partition that the server computes of the customer's name.
func prepare(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	if _, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "PARTITIONS"}); err != nil {
		return nil, err
	}
	return js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "PARTITIONED", Subjects: []string{"order.*"}, MaxAge: 24 * time.Hour,
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: "order.*", Destination: fmt.Sprintf("orders.{{partition(%d,1)}}.{{wildcard(1)}}", len(partitions)),
		},
	})
}

// takeOrders takes an order of one of twenty customers fifty times a second.
func takeOrders(ctx context.Context, log *slog.Logger, js jetstream.JetStream) {
	for ctx.Err() == nil {
		subject := fmt.Sprintf("order.customer-%d", rand.N(20))
		if _, err := js.Publish(ctx, subject, []byte("1")); err != nil && ctx.Err() == nil {
			log.Warn("Order not taken", "error", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
