package election_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// faulty is a bucket whose calls a test can replace. A hook may make the call itself, or not.
type faulty struct {
	jetstream.KeyValue
	update atomic.Pointer[updateHook]
	get    atomic.Pointer[getHook]
	watch  atomic.Pointer[watchHook]
	status atomic.Pointer[statusHook]
}

type (
	updateHook = func(ctx context.Context, value []byte, rev uint64, update func() (uint64, error)) (uint64, error)
	getHook    = func(ctx context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error)
	watchHook  = func(watch func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error)
	statusHook = func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error)
)

func (b *faulty) onUpdate(f updateHook) { b.update.Store(&f) }
func (b *faulty) onGet(f getHook)       { b.get.Store(&f) }
func (b *faulty) onWatch(f watchHook)   { b.watch.Store(&f) }
func (b *faulty) onStatus(f statusHook) { b.status.Store(&f) }

// failOnce makes the next update fail without being applied.
func (b *faulty) failOnce() {
	var failed atomic.Bool
	b.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
		if failed.CompareAndSwap(false, true) {
			return 0, jetstream.ErrNoStreamResponse
		}
		return update()
	})
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
	watch := func() (jetstream.KeyWatcher, error) { return b.KeyValue.Watch(ctx, keys, opts...) }
	if f := b.watch.Load(); f != nil {
		return (*f)(watch)
	}
	return watch()
}

func (b *faulty) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	status := func() (jetstream.KeyValueStatus, error) { return b.KeyValue.Status(ctx) }
	if f := b.status.Load(); f != nil {
		return (*f)(status)
	}
	return status()
}

// entry is an entry that a bucket might return.
type entry struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (e entry) Value() []byte { return e.value }

func (e entry) Revision() uint64 { return e.revision }

func (e entry) Created() time.Time { return time.Now() }

// errConflict is how a replicated stream refuses a write while another write of the key is in flight.
var errConflict = fmt.Errorf("nats: %w: %w", &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}, jetstream.ErrKeyRevisionMismatch)
