// Step6 answers probes, and shows metrics.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/witness"
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
	w, err := witness.Start(dial) // first: in the process of the witness it does not return
	if err != nil {
		log.Print(err) // go on: without a witness the lease has to end
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
		w.Option(),
		election.WithCampaignInterval(5*time.Second/3), // outages of 2.5 s end no term
		election.WithRegisterer(prometheus.DefaultRegisterer),
	)
	if err != nil {
		return err
	}
	http.Handle("/", candidate.Handler()) // /leader and /healthz
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.ListenAndServe(os.Args[2], nil)) }()
	return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
		out, err := fence.OpenStream(ctx, js, "INVOICES", "invoices.epoch", term)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := bill(context.WithoutCancel(ctx), out, invoices); err != nil {
				return err
			}
		}
		return nil
	})
}

// bill writes the invoice that comes after the last one.
func bill(ctx context.Context, out *fence.Stream, invoices jetstream.Stream) error {
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
