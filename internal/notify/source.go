package notify

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// retryDelay is how long a notifier that found no source waits before it tries again.
	retryDelay = 30 * time.Second
	// sourceInterval is the least time from the start of one source to that of the next.
	sourceInterval = time.Second
)

// run keeps the notifier on the best source there is: republished changes, else a watcher, else none.
func (n *Notifier) run(ctx context.Context) {
	defer close(n.done)
	var changes chan nats.Status
	if nc := n.bucket.Conn(); nc != nil {
		changes = nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
		defer nc.RemoveStatusListener(changes)
		if nc.IsClosed() {
			n.statusChanged(nats.CLOSED)
		}
	}
	level := slog.LevelWarn // the first time
	var triedEarly time.Time
	for stalled := false; ctx.Err() == nil; { // stalled: republished changes did not arrive
		began := time.Now()
		if !stalled && n.bucket.Conn() != nil && n.republish != "" {
			stalled = n.subscribe(ctx, changes)
			if stalled {
				n.lose()
			}
		} else if err := n.watch(ctx, changes); err == nil {
			stalled = false // a better source may work by now
		} else if ctx.Err() == nil {
			n.log.Log(ctx, level, "Changes of the bucket cannot be received, polling", "bucket", n.bucket.Bucket(), "error", kv.Describe(err))
			level, stalled = slog.LevelDebug, false
			n.use(core.NoSource, false)
			n.waitWithoutSource(ctx, changes, &triedEarly)
		}
		timeutil.Sleep(ctx, time.Until(began.Add(sourceInterval)))
		select {
		case <-n.remake: // load does what was asked for
		default:
		}
		n.load(ctx)
	}
}

// waitWithoutSource waits until a source may work again. triedEarly is when the wait last ended because keys have come or gone. Locks come and go: a
// watcher that was refused is not tried again for each of them.
func (n *Notifier) waitWithoutSource(ctx context.Context, changes <-chan nats.Status, triedEarly *time.Time) {
	watchAll := n.watchAll
	if time.Since(*triedEarly) < retryDelay {
		watchAll = nil
	}
	select {
	case <-ctx.Done():
	case s := <-changes:
		n.statusChanged(s)
	case <-n.remake:
	case <-watchAll: // another watcher than the refused one may be permitted
		*triedEarly = time.Now()
	case <-time.After(retryDelay):
	}
}

// statusChanged handles that the connection was made again, or was closed for good.
func (n *Notifier) statusChanged(s nats.Status) {
	if s != nats.CLOSED {
		now := time.Now()
		n.connected.Store(&now)
		for _, l := range n.all() {
			l.Receive(core.Reconnected{At: now})
		}
		return
	}
	for _, l := range n.all() {
		l.Closed()
	}
}

// load asks the server about the bucket: it may republish elsewhere by now, or may have been made again.
func (n *Notifier) load(ctx context.Context) {
	info, err := n.bucket.Load(ctx)
	if err != nil {
		return // what is known may still be so
	}
	if before := n.created.Swap(&info.Created); !before.Equal(info.Created) {
		for _, l := range n.all() {
			l.Receive(core.SourceMoved{Created: info.Created})
		}
	}
	n.republish = info.Republish
}

// use publishes which source is in use. Changes may have been missed before it was, so all keys are read: those of all processes within a while, if
// all of them meet what happened, such as a reconnection.
func (n *Notifier) use(source string, spread bool) {
	n.mu.Lock()
	n.source.Store(&source)
	n.mu.Unlock()
	select {
	case <-n.stalled: // the report was about the source before this one
	default:
	}
	for _, l := range n.all() {
		l.Receive(core.SourceChanged{Source: source, Spread: spread})
	}
	select {
	case <-n.ready:
	default:
		close(n.ready)
	}
}

// lose publishes that the source in use is stalled, and that there is no other yet.
func (n *Notifier) lose() {
	none := core.NoSource
	n.mu.Lock()
	n.source.Store(&none)
	n.mu.Unlock()
	for _, l := range n.all() {
		l.Receive(core.SourceLost{})
	}
}

// inUse returns the source that is in use, core.NoSource until there is one.
func (n *Notifier) inUse() string {
	if s := n.source.Load(); s != nil {
		return *s
	}
	return core.NoSource
}
