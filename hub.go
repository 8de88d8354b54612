package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How a candidate hears of changes; what Status and the metrics call it.
const (
	sourceRepublish = "republish"
	sourceWatch     = "watch"
	sourceNone      = "none"
)

// sourceRetry is how long a hub that found no source waits before it looks for one again.
const sourceRetry = 30 * time.Second

// closePatience is how long the end of a hub is waited for.
const closePatience = 250 * time.Millisecond

// hub hears every committed change of one bucket, by one subscription or one watcher for all the elections of this
// process that stand in it, and passes each on to the ears of its key.
//
// The best source is the subject on which the bucket republishes what it commits: a plain subscription, which costs the
// server no consumer. Without it one KV watcher serves. Without that nobody hears anything, and polling goes on. A source
// may go deaf without a sign, so that nobody relies on it alone: a candidate trusts it only while it hears.
type hub struct {
	id     any
	bucket jetstream.KeyValue
	conn   *nats.Conn // nil without WithJetStream
	dest   string     // the subject on which the bucket republishes; empty if it does not
	log    *slog.Logger

	source atomic.Pointer[string]
	remake chan struct{} // receives when there is reason to doubt the source: a change was not heard, or a key was added

	mu       sync.Mutex
	ears     map[string][]*ear // by key; lists are replaced, never changed
	attempts *nats.Subscription
	leaders  int // ears that count attempts
	cancel   context.CancelFunc
	done     chan struct{}
}

// hubs are those of this process, by the connection and the name of the bucket or, where the connection is not known, by
// the handle of the bucket.
var hubs struct {
	sync.Mutex
	by map[any]*hub
}

type connectedBucket struct {
	conn *nats.Conn
	name string
}

// listen returns an ear for the key, on the hub of the bucket, which is started if this is the first. The ear must be
// closed.
func (e *Election) listen(f *facts) *ear {
	a := &ear{key: e.key, ttl: f.ttl, news: make(chan struct{}, 1)}
	var conn *nats.Conn
	var id any = a // shared with nobody
	if e.opts.js != nil {
		conn = e.opts.js.Conn()
		id = connectedBucket{conn, e.bucket.Bucket()}
	} else if reflect.TypeOf(e.bucket).Comparable() {
		id = e.bucket
	}

	hubs.Lock()
	defer hubs.Unlock()
	h := hubs.by[id]
	if h == nil {
		h = &hub{
			id: id, bucket: e.bucket, conn: conn, dest: f.republish, log: e.opts.slog(),
			remake: make(chan struct{}, 1), ears: map[string][]*ear{}, done: make(chan struct{}),
		}
		var ctx context.Context
		ctx, h.cancel = context.WithCancel(context.Background())
		if hubs.by == nil {
			hubs.by = map[any]*hub{}
		}
		hubs.by[id] = h
		go h.run(ctx)
	}
	a.hub = h
	h.mu.Lock()
	h.ears[a.key] = append(slices.Clone(h.ears[a.key]), a)
	second := len(h.ears) == 2 && len(h.ears[a.key]) == 1
	h.mu.Unlock()
	if second && h.inUse() == sourceWatch {
		h.suspect() // it watches the first key alone
	}
	return a
}

// close ends the ear, and the hub with its last.
func (a *ear) close() {
	a.count(false)
	h := a.hub
	hubs.Lock()
	h.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(h.ears[a.key]), func(other *ear) bool { return other == a })
	if h.ears[a.key] = rest; len(rest) == 0 {
		delete(h.ears, a.key)
	}
	last := len(h.ears) == 0
	h.mu.Unlock()
	if last {
		delete(hubs.by, h.id)
	}
	hubs.Unlock()
	if last {
		h.cancel()
		select {
		case <-h.done:
		case <-time.After(closePatience): // the server is asked to forget a watcher, and may not answer
		}
	}
}

// suspect has the source made again, or the next best one taken.
func (h *hub) suspect() {
	select {
	case h.remake <- struct{}{}:
	default:
	}
}

// run keeps the hub on the best source there is.
func (h *hub) run(ctx context.Context) {
	defer close(h.done)
	var reconnects chan nats.Status
	if h.conn != nil {
		reconnects = h.conn.StatusChanged(nats.CONNECTED)
		defer h.conn.RemoveStatusListener(reconnects)
	}
	level := slog.LevelWarn // the first time
	for skip := 0; ctx.Err() == nil; {
		switch {
		case skip < 1 && h.conn != nil && h.dest != "":
			if !h.subscribed(ctx, reconnects) {
				skip = 1
			}
		case skip < 2:
			if err := h.watched(ctx, reconnects); err != nil && ctx.Err() == nil {
				h.log.Log(ctx, level, "Changes of the bucket cannot be heard, polling", "bucket", h.bucket.Bucket(), "error", err)
				level, skip = slog.LevelDebug, 2
			}
		default:
			h.use(sourceNone)
			select {
			case <-ctx.Done():
			case <-reconnects:
			case <-time.After(sourceRetry):
			}
			skip = 0
		}
	}
}

// use makes known which source is in use. Nobody trusts it before it was heard.
func (h *hub) use(source string) {
	h.source.Store(&source)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ears := range h.ears {
		for _, a := range ears {
			a.doubt()
		}
	}
}

// inUse returns the source that is in use, sourceNone until one is.
func (h *hub) inUse() string {
	if s := h.source.Load(); s != nil {
		return *s
	}
	return sourceNone
}

// subscribed hears changes by the bucket's republished messages until ctx ends. It returns false if there are none.
func (h *hub) subscribed(ctx context.Context, reconnects <-chan nats.Status) bool {
	sub, err := h.conn.Subscribe(h.dest, h.republished)
	if err != nil {
		h.log.Debug("Republished changes cannot be subscribed to", "bucket", h.bucket.Bucket(), "error", err)
		return false
	}
	defer func() { _ = sub.Unsubscribe() }()
	h.use(sourceRepublish)
	for {
		select {
		case <-ctx.Done():
			return true
		case <-reconnects:
			h.use(sourceRepublish) // the client subscribes again by itself, but what was said meanwhile is lost
		case <-h.remake:
			h.log.Warn("Republished changes are not heard", "bucket", h.bucket.Bucket(), "subject", h.dest)
			return false
		}
	}
}

// republished reads one message of the bucket's republishing.
func (h *hub) republished(m *nats.Msg) {
	key, ours := strings.CutPrefix(m.Header.Get("Nats-Subject"), "$KV."+h.bucket.Bucket()+".")
	revision, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if !ours || err != nil {
		return
	}
	written, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // zero: not known
	c := change{revision: revision, written: written, value: m.Data}
	switch {
	case m.Header.Get("Nats-Marker-Reason") == "MaxAge":
		c.removal = expired
	case m.Header.Get("Nats-Marker-Reason") != "", m.Header.Get("KV-Operation") != "":
		c.removal = removed
	}
	h.tell(key, c)
}

// watched hears changes by a watcher until ctx ends or there is reason to make another.
func (h *hub) watched(ctx context.Context, reconnects <-chan nats.Status) (err error) {
	defer func() {
		if p := recover(); p != nil { // a bucket that is not of nats.go need not have a watcher
			err = fmt.Errorf("watcher panicked: %v", p)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := h.watch(ctx)
	if err == nil && w == nil {
		err = errors.New("there is no watcher")
	}
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	h.use(sourceWatch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnects: // a watcher may be blind from now on, without a sign
			return nil
		case <-h.remake:
			return nil
		case entry, ok := <-w.Updates():
			if !ok {
				return nil
			}
			if entry != nil { // else all that stands in the bucket has been told
				h.entry(entry)
			}
		}
	}
}

// watch makes a watcher of the whole bucket, or of the one key that matters: for more a candidate may have no permission.
func (h *hub) watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	h.mu.Lock()
	keys := slices.Collect(maps.Keys(h.ears))
	h.mu.Unlock()
	if len(keys) == 1 {
		return h.bucket.Watch(ctx, keys[0])
	}
	return h.bucket.WatchAll(ctx)
}

// entry reads one update of a watcher, which does not tell whether a key was purged or expired.
func (h *hub) entry(entry jetstream.KeyValueEntry) {
	c := change{revision: entry.Revision(), written: entry.Created(), value: entry.Value()}
	switch entry.Operation() {
	case jetstream.KeyValueDelete:
		c.removal = removed
	case jetstream.KeyValuePurge:
		c.removal = removedOrExpired
	}
	h.tell(entry.Key(), c)
}

// tell passes a change on to the ears of its key.
func (h *hub) tell(key string, c change) {
	h.mu.Lock()
	ears := h.ears[key]
	h.mu.Unlock()
	if len(ears) == 0 {
		return
	}
	if c.removal == kept {
		c.record = parseRecord(c.value)
	}
	for _, a := range ears {
		a.hear(c)
	}
}

// countAttempts subscribes to the subjects of the keys while there are leaders that count: what is published there are
// attempts, losing ones too.
func (h *hub) countAttempts(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.leaders++
	} else {
		h.leaders--
	}
	switch {
	case h.leaders == 0 && h.attempts != nil:
		_ = h.attempts.Unsubscribe()
		h.attempts = nil
	case h.leaders == 1 && h.attempts == nil:
		prefix := "$KV." + h.bucket.Bucket() + "."
		sub, err := h.conn.Subscribe(prefix+">", func(m *nats.Msg) {
			key := strings.TrimPrefix(m.Subject, prefix)
			h.mu.Lock()
			ears := h.ears[key]
			h.mu.Unlock()
			if len(ears) == 0 {
				return
			}
			r := parseRecord(m.Data)
			for _, a := range ears {
				a.attempted(r)
			}
		})
		if err != nil {
			h.log.Debug("Attempts cannot be heard", "bucket", h.bucket.Bucket(), "error", err)
			return
		}
		h.attempts = sub
	}
}
