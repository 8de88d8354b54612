package fleettest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
)

// Unwatchable is a bucket that refuses all watchers.
type Unwatchable = kv.Unwatchable

// Watched is a bucket that remembers the contexts of its watchers. While Refusing is true it starts none.
type Watched struct {
	jetstream.KeyValue
	Refusing atomic.Bool

	mu       sync.Mutex
	contexts []context.Context
}

// WatchAll remembers the context.
func (b *Watched) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if err := b.watch(ctx); err != nil {
		return nil, err
	}
	return b.KeyValue.WatchAll(ctx, opts...)
}

// WatchFiltered remembers the context.
func (b *Watched) WatchFiltered(ctx context.Context, keys []string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if err := b.watch(ctx); err != nil {
		return nil, err
	}
	return b.KeyValue.WatchFiltered(ctx, keys, opts...)
}

func (b *Watched) watch(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.contexts = append(b.contexts, ctx)
	if b.Refusing.Load() {
		return jetstream.ErrNoStreamResponse
	}
	return nil
}

// ExpectOneContext checks that the contexts of many watchers have ended, and only that of the last has not.
func (b *Watched) ExpectOneContext(g *gomega.WithT) {
	g.THelper()
	b.mu.Lock()
	defer b.mu.Unlock()
	g.Expect(len(b.contexts)).To(gomega.BeNumerically(">", 100))
	last := len(b.contexts) - 1
	g.Expect(b.contexts[last].Err()).NotTo(gomega.HaveOccurred())
	for _, ctx := range b.contexts[:last] {
		g.Expect(ctx.Err()).To(gomega.HaveOccurred())
	}
}
