package alerts

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// failing is a bucket that answers every second update too late: it is not sent at all, and the candidate cannot know that.
type failing struct {
	jetstream.KeyValue
	updates atomic.Uint64
}

// Update fails every second time.
func (b *failing) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	if b.updates.Add(1)%2 == 0 {
		return 0, context.DeadlineExceeded
	}
	return b.KeyValue.Update(ctx, key, value, last)
}

// late is a bucket that takes an update only some time after the last one.
type late struct {
	jetstream.KeyValue
	spacing time.Duration
	last    atomic.Int64 // when an update was last taken, in nanoseconds
}

// Update fails until the time has come.
func (b *late) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	if time.Since(time.Unix(0, b.last.Load())) < b.spacing {
		return 0, context.DeadlineExceeded
	}
	sent := time.Now()
	revision, err := b.KeyValue.Update(ctx, key, value, last)
	if err == nil {
		b.last.Store(sent.UnixNano())
	}
	return revision, err
}
