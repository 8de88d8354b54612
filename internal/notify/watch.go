package notify

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
)

// watch receives changes by a watcher until there is reason to use another source. The error says why the watcher does not work.
func (n *Notifier) watch(ctx context.Context, changes <-chan nats.Status) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, all, err := n.startWatcher(ctx)
	if err != nil {
		return err
	}
	defer func() { kv.StopWatcher(w) }()
	n.use(core.Watch, true)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-changes: // a watcher may be stalled from now on, without a sign
			n.statusChanged(s)
			return nil
		case <-n.remake:
			return nil
		case <-n.stalled:
			return nil
		case <-n.watchAll: // before the other watcher ends: a candidate may just have been named as the successor
			if all {
				continue // a second key comes and goes with each lock of a process that has one election besides
			}
			next, nextAll, err := n.startWatcher(ctx)
			if err != nil {
				return err
			}
			kv.StopWatcher(w)
			w, all = next, nextAll
			n.use(core.Watch, false)
		case entry, ok := <-w.Updates():
			if !ok {
				return errors.New("the watcher ended")
			}
			if entry != nil { // nil follows what is stored in the bucket already
				n.watched(entry)
			}
		}
	}
}

// startWatcher starts a watcher of the whole bucket, or of the one key that matters: for more a candidate may have no permission.
func (n *Notifier) startWatcher(ctx context.Context) (w jetstream.KeyWatcher, all bool, err error) {
	select {
	case <-n.watchAll: // that was about the last watcher
	default:
	}
	n.mu.Lock()
	keys := slices.Collect(maps.Keys(n.listeners))
	n.mu.Unlock()
	all = len(keys) != 1
	w, err = kv.StartWatcher(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) {
		if all {
			return n.bucket.WatchAll(ctx)
		}
		return n.bucket.Watch(ctx, keys[0])
	})
	return w, all, err
}

// watched handles one update of a watcher, which does not distinguish a purge from an expiry.
func (n *Notifier) watched(entry jetstream.KeyValueEntry) {
	n.notify(entry.Key(), core.Notification{Revision: entry.Revision(), Written: entry.Created(), Removal: kv.RemovalBy(entry)}, entry.Value())
}
