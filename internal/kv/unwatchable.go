package kv

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Unwatchable is a bucket that refuses all watchers, as a server does that does not permit them, for drills and tests: its candidates learn of
// changes by their campaigns.
type Unwatchable struct{ jetstream.KeyValue }

// Watch refuses.
func (Unwatchable) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, nats.ErrPermissionViolation
}

// WatchAll refuses.
func (Unwatchable) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, nats.ErrPermissionViolation
}

// WatchFiltered refuses.
func (Unwatchable) WatchFiltered(context.Context, []string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, nats.ErrPermissionViolation
}
