package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/natscampaign/election/internal/timing"
)

// watcher is a watcher with a context of its own.
type watcher struct {
	jetstream.KeyWatcher
	cancel context.CancelCauseFunc
	bucket *Bucket // nil if it is not known
}

// StartWatcher starts a watcher with a context that ends with it, or if it could not be started: the client keeps some memory on a
// context for each watcher that could not be started, and callers start one after the other within one context. A bucket that is not
// of nats.go need not have watchers: a panic or a nil watcher becomes an error.
func StartWatcher(ctx context.Context, start func(context.Context) (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
	return startWatcher(ctx, nil, func(ctx context.Context, _ context.CancelCauseFunc) (jetstream.KeyWatcher, error) { return start(ctx) })
}

// StartWatcher is the function of that name for the keys of a pattern. Where the server refuses to create the consumer, it returns at
// once, with an error that wraps nats.ErrPermissionViolation.
func (b *Bucket) StartWatcher(ctx context.Context, pattern string, start func(context.Context) (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error) {
	return startWatcher(ctx, b, func(ctx context.Context, cancel context.CancelCauseFunc) (w jetstream.KeyWatcher, err error) {
		err = untilRefused(ctx, cancel, b.Conn(), b.ToWatch(pattern), func(ctx context.Context) (err error) {
			w, err = start(ctx)
			return err
		})
		return w, err
	})
}

// EndStart is for a function that starts a watcher: it has the start end with the context ctx, too. Once started, the watcher outlasts ctx.
func EndStart(ctx context.Context, start func(context.Context) (jetstream.KeyWatcher, error)) func(context.Context) (jetstream.KeyWatcher, error) {
	return func(watching context.Context) (jetstream.KeyWatcher, error) {
		watching, cancel := context.WithCancel(watching)
		defer context.AfterFunc(ctx, cancel)()
		return start(watching)
	}
}

func startWatcher(ctx context.Context, b *Bucket, start func(context.Context, context.CancelCauseFunc) (jetstream.KeyWatcher, error)) (w jetstream.KeyWatcher, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if p := recover(); p != nil {
			w, err = nil, fmt.Errorf("watcher panicked: %v", p)
		}
		if err != nil {
			cancel(nil)
		}
	}()
	w, err = start(ctx, cancel)
	if err == nil && w == nil {
		err = errors.New("the bucket has no watchers")
	}
	if err != nil {
		return nil, err
	}
	return &watcher{w, cancel, b}, nil
}

// StopWatcher stops a watcher, and waits for its end only for a moment; where the server refuses to remove the consumer, not at all. It
// drains the updates, because the client waits until somebody takes them.
func StopWatcher(w jetstream.KeyWatcher) {
	stopped := make(chan struct{})
	go drain(w)
	own, _ := w.(*watcher)
	go func() {
		defer close(stopped)
		if own != nil {
			defer own.cancel(nil)
		}
		_ = w.Stop()
	}()
	wait := func(ctx context.Context) error {
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if own != nil && own.bucket != nil {
		_ = UntilRefused(ctx, own.bucket.Conn(), own.bucket.toUnwatch(), wait)
		return
	}
	_ = wait(ctx)
}

// drain takes the updates of a watcher until it has stopped, or for a while.
func drain(w jetstream.KeyWatcher) {
	for late := time.After(timing.RequestTimeout); ; {
		select {
		case _, ok := <-w.Updates():
			if !ok {
				return
			}
		case <-late:
			return
		}
	}
}
