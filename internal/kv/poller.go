package kv

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// readsAtOnce bounds the reads of a poller that are under way at the same time.
const readsAtOnce = 32

// poller is a watcher that reads: it needs no consumer.
type poller struct {
	bucket   *Bucket
	patterns []string
	updates  chan jetstream.KeyValueEntry
	cancel   context.CancelFunc
}

// Poll returns a watcher that reads the keys of the patterns once per interval, where a server grants no consumer. It delivers what is stored, then nil,
// and then what has changed since the last read; nothing when a key expires or is deleted. Patterns other than keys need permission to read the
// stream's info. The bucket must know its connection.
func (b *Bucket) Poll(ctx context.Context, patterns []string, interval time.Duration) jetstream.KeyWatcher {
	ctx, cancel := context.WithCancel(ctx)
	p := &poller{b, patterns, make(chan jetstream.KeyValueEntry), cancel}
	go p.run(ctx, interval)
	return p
}

// Updates returns the channel of what the watcher delivers.
func (p *poller) Updates() <-chan jetstream.KeyValueEntry { return p.updates }

// Stop stops the watcher.
func (p *poller) Stop() error {
	p.cancel()
	return nil
}

func (p *poller) run(ctx context.Context, interval time.Duration) {
	defer close(p.updates)
	delivered := map[string]uint64{} // revisions, by key
	for complete := false; ; {
		entries, all := p.read(ctx)
		stored := make(map[string]uint64, len(entries))
		for _, entry := range entries {
			stored[entry.Key()] = entry.Revision()
			if entry.Revision() != delivered[entry.Key()] && !p.deliver(ctx, entry) {
				return
			}
		}
		delivered = stored
		if all && !complete {
			if complete = true; !p.deliver(ctx, nil) {
				return
			}
		}
		if !timeutil.Sleep(ctx, interval) {
			return
		}
	}
}

func (p *poller) deliver(ctx context.Context, entry jetstream.KeyValueEntry) bool {
	select {
	case p.updates <- entry:
		return true
	case <-ctx.Done():
		return false
	}
}

// read returns what is stored, in the order in which it was written. It is all of it if every read was answered.
func (p *poller) read(ctx context.Context) (entries []jetstream.KeyValueEntry, all bool) {
	all = true
	var keys []string
	for _, pattern := range p.patterns {
		if !strings.ContainsAny(pattern, "*>") {
			keys = append(keys, pattern)
			continue
		}
		limit, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
		stored, err := p.bucket.StoredKeys(limit, pattern)
		cancel()
		keys, all = append(keys, stored...), all && err == nil
	}
	var mu sync.Mutex
	var reads sync.WaitGroup
	places := make(chan struct{}, readsAtOnce)
	for _, key := range keys {
		places <- struct{}{}
		reads.Go(func() {
			defer func() { <-places }()
			limit, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
			defer cancel()
			entry, err := p.bucket.Get(limit, key)
			mu.Lock()
			defer mu.Unlock()
			switch Classify(err) {
			case Applied:
				entries = append(entries, entry)
			case Absent:
			default:
				all = false
			}
		})
	}
	reads.Wait()
	slices.SortFunc(entries, func(a, b jetstream.KeyValueEntry) int { return cmp.Compare(a.Revision(), b.Revision()) })
	return entries, all
}
