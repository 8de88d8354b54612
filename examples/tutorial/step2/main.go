// Step2 writes invoices on the leader only. A leader that ends is replaced when its lease is over.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

func main() {
	log.SetPrefix(os.Args[1] + " ")
	log.SetFlags(log.Ltime)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func dial(context.Context) (*nats.Conn, error) {
	return nats.Connect(os.Getenv("NATS_URL"),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(time.Second))
}

func run() error {
	ctx := context.Background()
	nc, err := dial(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	invoices, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "INVOICES", Subjects: []string{"invoices.*"}})
	if err != nil {
		return err
	}
	bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: "LEADER_ELECTION", TTL: 5 * time.Second})
	if err != nil {
		return err
	}
	candidate, err := election.NewElection(os.Args[1], "billing", bucket,
		election.WithLogger(slog.Default()),
	)
	if err != nil {
		return err
	}
	return candidate.Run(ctx, func(ctx context.Context, _ election.Term) error {
		for ctx.Err() == nil {
			if err := bill(ctx, js, invoices); err != nil {
				return err
			}
		}
		return nil
	})
}

// bill writes the invoice that comes after the last one.
func bill(ctx context.Context, out jetstream.JetStream, invoices jetstream.Stream) error {
	number := 0
	last, err := invoices.GetLastMsgForSubject(ctx, "invoices.sent")
	if err == nil {
		number, err = strconv.Atoi(string(last.Data))
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	number++
	time.Sleep(time.Second) // the work: to add up, to draw a PDF
	if _, err := out.Publish(ctx, "invoices.sent", []byte(strconv.Itoa(number))); err != nil {
		return err
	}
	log.Printf("invoice %d", number)
	return nil
}
