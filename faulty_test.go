package election_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
)

// faulty is a bucket whose calls a test can take over. A hook may do without the bucket, or wrap what it does.
type faulty struct {
	jetstream.KeyValue
	deaf   bool // watchers are refused
	update atomic.Pointer[func(ctx context.Context, value []byte, rev uint64, update func() (uint64, error)) (uint64, error)]
	get    atomic.Pointer[func(ctx context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error)]
}

func (b *faulty) onUpdate(f func(ctx context.Context, value []byte, rev uint64, update func() (uint64, error)) (uint64, error)) {
	b.update.Store(&f)
}

func (b *faulty) onGet(f func(ctx context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error)) {
	b.get.Store(&f)
}

func (b *faulty) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	update := func() (uint64, error) { return b.KeyValue.Update(ctx, key, value, rev) }
	if f := b.update.Load(); f != nil {
		return (*f)(ctx, value, rev, update)
	}
	return update()
}

func (b *faulty) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	get := func() (jetstream.KeyValueEntry, error) { return b.KeyValue.Get(ctx, key) }
	if f := b.get.Load(); f != nil {
		return (*f)(ctx, get)
	}
	return get()
}

func (b *faulty) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if b.deaf {
		return nil, errors.New("permissions violation")
	}
	return b.KeyValue.Watch(ctx, keys, opts...)
}

func (b *faulty) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if b.deaf {
		return nil, errors.New("permissions violation")
	}
	return b.KeyValue.WatchAll(ctx, opts...)
}
