// Warm loads the leader's state before it leads: the candidate that the leader names as the next one keeps a copy of a catalogue, and leads with
// it at once. Any other candidate that comes to lead loads the catalogue first.
//
//	go run ./examples/warm                                   # three candidates on a server in this process
//	NATS_URL=nats://127.0.0.1:4222 go run ./examples/warm    # one candidate, until interrupted
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/examples/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := demo.Rolling(ctx, log, candidate); err != nil { // in a program of yours: candidate(ctx, log, host)
		log.Error("Ended", "error", err)
		os.Exit(1)
	}
}

// candidate campaigns until ctx ends, and works with the catalogue while it leads.
func candidate(ctx context.Context, log *slog.Logger, name string) error {
	cfg, err := connect.FromEnv("ELECTION")
	if err != nil {
		return err
	}
	cfg.Name, cfg.Key, cfg.Logger = name, cmp.Or(cfg.Key, "warm"), log
	c, err := connect.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	source, err := prepare(ctx, c.JetStream)
	if err != nil {
		return err
	}
	state := &catalogue{source: source}
	defer state.drop()
	// A callback must not wait: keep only begins to load. The hint may never come, and the next leader may be another.
	next := election.OnNext(func(next bool) {
		log.Info("Next", "name", name, "next", next)
		if next {
			state.keep(ctx)
		} else {
			state.drop()
		}
	})
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options(next)...)
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, term election.Term) error {
		began := time.Now()
		warm := state.keep(ctx)
		items, err := state.wait(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		log.Info("Leading", "name", name, "term", term.Number, "warm", warm, "items", items, "ready-after", time.Since(began).Round(100*time.Microsecond))
		<-ctx.Done() // work with the catalogue here
		return nil
	})
}

// ignoreEnd returns nil if the work ended because its context did.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// items is how many items the catalogue of the example has.
const items = 2000

// prepare returns the bucket with the catalogue, and fills it the first time.
func prepare(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	source, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "CATALOGUE"})
	if err != nil {
		return nil, err
	}
	status, err := source.Status(ctx)
	if err != nil || status.Values() >= items {
		return source, err
	}
	for i := range items {
		if _, err := source.Put(ctx, fmt.Sprint("item-", i), fmt.Append(nil, i)); err != nil {
			return nil, err
		}
	}
	return source, nil
}

// catalogue is a copy of the bucket that is kept up to date.
type catalogue struct {
	source jetstream.KeyValue

	mu   sync.Mutex
	copy *kept // nil unless it is kept
}

// kept is a copy from when it begins to load.
type kept struct {
	stop   context.CancelFunc
	loaded chan struct{} // closed once all is loaded, or loading has failed
	err    error         // why; written before loaded is closed

	mu    sync.Mutex
	items map[string]string
}

// keep begins to load the catalogue, unless it is kept already, and reports whether it is loaded.
func (c *catalogue) keep(ctx context.Context) (loaded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copy == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // until drop: a term is shorter
		c.copy = &kept{stop: stop, loaded: make(chan struct{}), items: map[string]string{}}
		go c.copy.follow(ctx, c.source)
	}
	select {
	case <-c.copy.loaded:
		return true
	default:
		return false
	}
}

// wait waits until the catalogue is loaded, and returns how many items it has.
func (c *catalogue) wait(ctx context.Context) (items int, err error) {
	c.mu.Lock()
	k := c.copy
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-k.loaded:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.items), k.err
}

// drop forgets the catalogue.
func (c *catalogue) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copy != nil {
		c.copy.stop()
		c.copy = nil
	}
}

// follow loads the items, and takes over their changes until ctx ends.
func (k *kept) follow(ctx context.Context, source jetstream.KeyValue) {
	loaded := sync.OnceFunc(func() { close(k.loaded) })
	defer loaded()
	w, err := source.WatchAll(ctx)
	if err != nil {
		k.err = err
		return
	}
	for entry := range w.Updates() {
		if entry == nil { // all that was stored has come
			loaded()
			continue
		}
		k.mu.Lock()
		k.items[entry.Key()] = string(entry.Value())
		k.mu.Unlock()
	}
}
