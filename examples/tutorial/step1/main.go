// Step1 writes an invoice every second. Two copies of it write each invoice twice.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	log.SetPrefix(os.Args[1] + " ")
	log.SetFlags(log.Ltime)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx := context.Background()
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
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
	for {
		if err := bill(ctx, js, invoices); err != nil {
			return err
		}
	}
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
