// Package watch has what watchers of nats.go need beside themselves.
package watch

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// patience is how long a watcher that was stopped may go on telling.
const patience = 2 * time.Second

// watcher is one with a context of its own.
type watcher struct {
	jetstream.KeyWatcher
	cancel context.CancelFunc
}

// Start makes a watcher with a context that ends with it, or if there is none: the client hangs some memory on a context
// for each watcher that could not be made. It is for those who make one after the other within one context.
func Start(ctx context.Context, start func(context.Context) (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := start(ctx)
	if err == nil && w == nil {
		err = errors.New("there is no watcher")
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &watcher{w, cancel}, nil
}

// Stop ends the watcher, and its context.
func (w *watcher) Stop() error {
	defer w.cancel()
	return w.KeyWatcher.Stop()
}

// Stop ends a watcher. What it has yet to say is taken from it, for the client waits until somebody does.
func Stop(w jetstream.KeyWatcher) {
	go func() {
		for late := time.After(patience); ; {
			select {
			case _, ok := <-w.Updates():
				if !ok {
					return
				}
			case <-late:
				return
			}
		}
	}()
	_ = w.Stop()
}
