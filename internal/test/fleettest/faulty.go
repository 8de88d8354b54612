package fleettest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Faulty is a bucket whose calls a test can replace. A hook may make the call itself, or not.
type Faulty struct {
	jetstream.KeyValue
	update atomic.Pointer[UpdateHook]
	get    atomic.Pointer[GetHook]
	watch  atomic.Pointer[WatchHook]
	status atomic.Pointer[StatusHook]
}

// A hook takes the place of a call. Its last argument makes the call itself.
type (
	// UpdateHook takes the place of Update.
	UpdateHook = func(ctx context.Context, value []byte, rev uint64, update func() (uint64, error)) (uint64, error)
	// GetHook takes the place of Get.
	GetHook = func(ctx context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error)
	// WatchHook takes the place of Watch.
	WatchHook = func(watch func() (jetstream.KeyWatcher, error)) (jetstream.KeyWatcher, error)
	// StatusHook takes the place of Status.
	StatusHook = func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error)
)

// OnUpdate sets the hook of Update.
func (b *Faulty) OnUpdate(f UpdateHook) { b.update.Store(&f) }

// OnGet sets the hook of Get.
func (b *Faulty) OnGet(f GetHook) { b.get.Store(&f) }

// OnWatch sets the hook of Watch.
func (b *Faulty) OnWatch(f WatchHook) { b.watch.Store(&f) }

// OnStatus sets the hook of Status.
func (b *Faulty) OnStatus(f StatusHook) { b.status.Store(&f) }

// FailOnce makes the next update fail without being applied.
func (b *Faulty) FailOnce() {
	var failed atomic.Bool
	b.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
		if failed.CompareAndSwap(false, true) {
			return 0, jetstream.ErrNoStreamResponse
		}
		return update()
	})
}

// Update is the call, or the hook in its place.
func (b *Faulty) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	update := func() (uint64, error) { return b.KeyValue.Update(ctx, key, value, rev) }
	if f := b.update.Load(); f != nil {
		return (*f)(ctx, value, rev, update)
	}
	return update()
}

// Get is the call, or the hook in its place.
func (b *Faulty) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	get := func() (jetstream.KeyValueEntry, error) { return b.KeyValue.Get(ctx, key) }
	if f := b.get.Load(); f != nil {
		return (*f)(ctx, get)
	}
	return get()
}

// Watch is the call, or the hook in its place.
func (b *Faulty) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	watch := func() (jetstream.KeyWatcher, error) { return b.KeyValue.Watch(ctx, keys, opts...) }
	if f := b.watch.Load(); f != nil {
		return (*f)(watch)
	}
	return watch()
}

// Status is the call, or the hook in its place.
func (b *Faulty) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	status := func() (jetstream.KeyValueStatus, error) { return b.KeyValue.Status(ctx) }
	if f := b.status.Load(); f != nil {
		return (*f)(status)
	}
	return status()
}

// Entry is an entry that a bucket might return.
type Entry struct {
	jetstream.KeyValueEntry
	Text   []byte
	Number uint64
}

// Value implements jetstream.KeyValueEntry.
func (e Entry) Value() []byte { return e.Text }

// Revision implements jetstream.KeyValueEntry.
func (e Entry) Revision() uint64 { return e.Number }

// Created implements jetstream.KeyValueEntry.
func (e Entry) Created() time.Time { return time.Now() }

// ErrConflict is how a replicated stream refuses a write while another write of the key is in flight.
var ErrConflict = fmt.Errorf("nats: %w: %w", &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}, jetstream.ErrKeyRevisionMismatch)

// RefusalNaming is how a server that keeps a bucket alone refuses a write: its answer names the last revision of the key.
func RefusalNaming(last uint64) error {
	err := &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence, Description: fmt.Sprintf("wrong last sequence: %d", last)}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
}
