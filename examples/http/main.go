// Http serves HTTP on every host, and does the leader's part on the leader only.
//
// A load balancer asks /leader, which is 200 on the leader and 503 elsewhere. A probe that restarts processes asks /healthz, where a
// standby is healthy too. On SIGTERM a replica hands over first, which takes milliseconds, and then ends the requests that it still
// has.
//
//	go run ./examples/http                                   # three replicas on free ports, on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/http    # one replica on 127.0.0.1:8080, until interrupted
//	curl -i http://127.0.0.1:8080/leader
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
)

// What /leader and /healthz tell is for the load balancer and the probes, not for everybody: hence the loopback interface by default.
var listen = flag.String("listen", "127.0.0.1:8080", "address to serve on")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if demo.Alone() {
		*listen = "127.0.0.1:0" // a free port for each replica
		go balance(ctx, log)
	}
	if err := demo.Rolling(ctx, log, replica); err != nil { // in a program of yours: replica(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// replica serves and campaigns until ctx ends.
func replica(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "http"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	candidate, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	log.Info("Serving", "name", name, "url", "http://"+l.Addr().String())
	addresses.Store(name, "http://"+l.Addr().String())

	mux := http.NewServeMux()
	mux.Handle("/leader", candidate.Handler())
	mux.Handle("/healthz", candidate.Handler())
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		term, leads := candidate.Term()
		if leader := candidate.Status().Leader; !leads && leader != nil {
			http.Error(w, "the leader is "+leader.Name, http.StatusServiceUnavailable)
		} else if !leads {
			http.Error(w, "nobody leads yet", http.StatusServiceUnavailable)
		} else { // what has effects elsewhere sends term.Token() along, so that they can be refused if they come late: see examples/consumer
			fmt.Fprintf(w, "%s leads term %d", name, term.Number)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	err = candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
		log.Info("Leading", "name", name, "term", term.Number)
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err // it serves no more, so another replica had better lead
		}
	})
	draining, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(draining))
}

var addresses sync.Map // of the replicas in this process, by their names

// balance sends a request to the leader every 200 ms, as a load balancer does that asks all replicas for /leader.
func balance(ctx context.Context, log *slog.Logger) {
	client := http.Client{Timeout: time.Second}
	get := func(url string) (status int, body string) {
		answer, err := client.Get(url)
		if err != nil {
			return 0, "" // the replica restarts
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	for ctx.Err() == nil {
		addresses.Range(func(_, url any) bool {
			leads, _ := get(url.(string) + "/leader")
			if leads == http.StatusOK {
				status, body := get(url.(string))
				log.Info("Request sent to the leader", "status", status, "body", body)
			}
			return leads != http.StatusOK
		})
		time.Sleep(200 * time.Millisecond)
	}
}
