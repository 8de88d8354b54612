// Package notify tells candidates that something may have changed under their key.
//
// A [Notifier] receives every committed change of one bucket, by one subscription or one watcher for all candidates of this process,
// and passes each on to the [Listener]s of its key. The best source is the subject on which the bucket republishes what it commits: a
// plain subscription, which costs the server no consumer. Without it one watcher serves. Without a watcher nobody is notified, and
// candidates poll.
//
// A notification is a hint. Anybody who may publish where the bucket republishes can forge one, so a Listener only decides from it
// when its candidate reads the key. Hints that prove wrong three times in a row cause one read per TTL from then on.
//
// A source may stall without a sign. It counts as stalled when it has not reported for a second something that this process read or
// wrote; then the next best source takes its place.
package notify

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

// The sources of notifications, as the status and the metrics name them.
const (
	Republish = "republish"
	Watch     = "watch"
	None      = "none"
)

const (
	// retryDelay is how long a notifier that found no source waits before it tries again.
	retryDelay = 30 * time.Second
	// sourceInterval is the least time from the start of one source to that of the next.
	sourceInterval = time.Second
	// maxPendingBytes is how many bytes of messages may wait to be handled. What comes beyond that is dropped, as by a source that stalls.
	maxPendingBytes = 8 << 20
	// closeTimeout is how long the end of a notifier is waited for.
	closeTimeout = 250 * time.Millisecond
)

// Change is one committed write to a key, as a notification describes it. Nothing in it is believed.
type Change struct {
	Revision uint64
	Written  time.Time // by the server's clock
	Removal  kv.Removal
	Record   record.Record // what was written, unless the key was removed
}

// Vacant reports whether the key may be taken after the change, if the notification is true.
func (c *Change) Vacant() bool {
	_, released := c.Record.IsRelease()
	return c.Removal != kv.Kept || released
}

// Notifier receives the changes of one bucket for the candidates of this process.
type Notifier struct {
	id     any // nil if it is not shared
	bucket *kv.Bucket
	log    *slog.Logger

	source    atomic.Pointer[string]
	lost      atomic.Bool               // the source in use is stalled, and there is no other yet
	created   atomic.Pointer[time.Time] // when the bucket was created, as the server says; distinguishes it from others of its name
	connected atomic.Pointer[time.Time] // when the connection was last made again; zero if it was not
	republish string                    // the subject on which the bucket republishes; empty if it does not; belongs to run
	ready     chan struct{}             // closed when the first source is in use, or there is none
	remake    chan struct{}             // receives when the source should be made again
	watchAll  chan struct{}             // receives when a second key has come: a watcher may be that of the first key alone
	stalled   chan struct{}             // receives when a listener reports the source as stalled

	mu        sync.Mutex // never held across I/O
	listeners map[string][]*Listener

	attempts struct { // serialises the subscriptions to attempts
		sync.Mutex
		leaders int
		subs    []*nats.Subscription
	}
	cancel context.CancelFunc
	done   chan struct{}
}

// notifiers are those of this process, by the id of the bucket.
var notifiers struct {
	sync.Mutex
	by map[any]*Notifier
}

// Listen returns a listener for a key of the bucket, which info describes. It starts the bucket's notifier if this is the first
// listener. The caller must call Close.
func Listen(bucket *kv.Bucket, info kv.Info, cfg Config) *Listener {
	l := &Listener{Config: cfg, news: make(chan struct{}, 1)}
	notifiers.Lock()
	defer notifiers.Unlock()
	id := bucket.ID()
	n := notifiers.by[id]
	if n == nil || id == nil {
		n = &Notifier{
			id: id, bucket: bucket, republish: info.Republish, log: cfg.Log, listeners: map[string][]*Listener{},
			ready: make(chan struct{}), remake: make(chan struct{}, 1), watchAll: make(chan struct{}, 1), stalled: make(chan struct{}, 1), done: make(chan struct{}),
		}
		n.created.Store(&info.Created)
		n.connected.Store(&time.Time{})
		if id != nil {
			if notifiers.by == nil {
				notifiers.by = map[any]*Notifier{}
			}
			notifiers.by[id] = n
		}
		var ctx context.Context
		ctx, n.cancel = context.WithCancel(context.Background())
		defer func() { go n.run(ctx) }() // with this listener
	}
	l.notifier = n
	n.mu.Lock()
	n.listeners[l.Key] = append(slices.Clone(n.listeners[l.Key]), l)
	second := len(n.listeners) == 2 && len(n.listeners[l.Key]) == 1
	n.mu.Unlock()
	if second {
		wakeup.Send(n.watchAll)
	}
	return l
}

// Close ends the listener, and its notifier with the last one.
func (l *Listener) Close() {
	l.RecordAttempts(false)
	n := l.notifier
	notifiers.Lock()
	n.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(n.listeners[l.Key]), func(other *Listener) bool { return other == l })
	if n.listeners[l.Key] = rest; len(rest) == 0 {
		delete(n.listeners, l.Key)
	}
	last := len(n.listeners) == 0
	n.mu.Unlock()
	if last && n.id != nil {
		delete(notifiers.by, n.id)
	}
	notifiers.Unlock()
	if last {
		n.cancel()
		select {
		case <-n.done:
		case <-time.After(closeTimeout):
		}
	}
}

// of returns the listeners of a key. The list is never changed.
func (n *Notifier) of(key string) []*Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[key]
}

// all returns the listeners of all keys.
func (n *Notifier) all() []*Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(n.listeners))...)
}

// inUse returns the source that is in use, None until there is one.
func (n *Notifier) inUse() string {
	if s := n.source.Load(); s != nil {
		return *s
	}
	return None
}

// spread is the time over which the candidates of all processes spread what they ask after an event that all of them meet, such as a
// reconnection.
func (n *Notifier) spread() time.Duration {
	for _, l := range n.all() {
		return l.TTL / 4
	}
	return 0
}

// run keeps the notifier on the best source there is.
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
	for stalled := false; ctx.Err() == nil; {
		began := time.Now()
		if !stalled && n.bucket.Conn() != nil && n.republish != "" {
			stalled = n.subscribe(ctx, changes)
			n.lost.Store(stalled)
		} else if err := n.watch(ctx, changes); err == nil {
			stalled = false // a better source may work by now
		} else if ctx.Err() == nil {
			n.log.Log(ctx, level, "Changes of the bucket cannot be received, polling", "bucket", n.bucket.Bucket(), "error", kv.Describe(err))
			level, stalled = slog.LevelDebug, false
			n.use(None, 0)
			select {
			case <-ctx.Done():
			case s := <-changes:
				n.statusChanged(s)
			case <-time.After(retryDelay):
			}
		}
		timeutil.Sleep(ctx, time.Until(began.Add(sourceInterval)))
		n.load(ctx)
	}
}

// statusChanged handles that the connection was made again, or was closed for good.
func (n *Notifier) statusChanged(s nats.Status) {
	if s != nats.CLOSED {
		now := time.Now()
		n.connected.Store(&now)
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
			l.bucketReplaced()
		}
	}
	n.republish = info.Republish
}

// use publishes which source is in use. Changes may have been missed before it was, so all keys are read within the given time.
func (n *Notifier) use(source string, within time.Duration) {
	n.source.Store(&source)
	n.lost.Store(false)
	for _, c := range []chan struct{}{n.stalled, n.remake} {
		select {
		case <-c: // that was about the last source
		default:
		}
	}
	for _, l := range n.all() {
		l.sourceChanged(within)
	}
	select {
	case <-n.ready:
	default:
		close(n.ready)
	}
}

// subscribe receives changes by the bucket's republished messages, until there is reason to use another source. It reports whether
// that is because this source is stalled or refused.
func (n *Notifier) subscribe(ctx context.Context, changes <-chan nats.Status) (stalled bool) {
	nc := n.bucket.Conn()
	before := nc.LastError()
	sub, err := nc.Subscribe(n.republish, n.republished)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		_ = sub.SetPendingLimits(-1, maxPendingBytes)
		err = n.refused(ctx, before)
	}
	if err != nil {
		n.log.Debug("Republished changes cannot be subscribed to", "bucket", n.bucket.Bucket(), "error", err)
		return true
	}
	n.use(Republish, n.spread())
	for {
		select {
		case <-ctx.Done():
			return false
		case s := <-changes:
			n.statusChanged(s)
			if n.refused(ctx, nil) != nil { // the client has subscribed again before it reports the connection
				return true
			}
			n.use(Republish, n.spread()) // what was published meanwhile is lost
		case <-n.remake:
			return false
		case <-n.stalled:
			if n.confirmStalled(ctx, sub) {
				n.log.Warn("Republished changes do not arrive", "bucket", n.bucket.Bucket(), "subject", n.republish)
				return true
			}
		}
	}
}

// confirmStalled reports whether something is still missing once everything is handled that the server sent until now: a busy host may
// only be late to handle it.
func (n *Notifier) confirmStalled(ctx context.Context, sub *nats.Subscription) bool {
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout)
	defer cancel()
	if n.bucket.Conn().FlushWithContext(ctx) != nil {
		return false // the connection is reported when it is there again
	}
	for waiting, _, err := sub.Pending(); err == nil && waiting > 0 && timeutil.Sleep(ctx, 10*time.Millisecond); {
		waiting, _, err = sub.Pending()
	}
	return slices.ContainsFunc(n.all(), (*Listener).isStalled)
}

// refused returns the error of a server that does not permit the subscription; before is the last error that the connection had
// reported when the subscription was made.
func (n *Notifier) refused(ctx context.Context, before error) error {
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout)
	defer cancel()
	nc := n.bucket.Conn()
	return kv.FindRefusal(ctx, nc, before, `Subscription to "`+n.republish+`"`, func() error {
		probe, err := nc.SubscribeSync(n.republish)
		if err == nil {
			err = probe.Unsubscribe()
		}
		return err
	})
}

// republished handles one republished message.
func (n *Notifier) republished(m *nats.Msg) {
	key, ours := strings.CutPrefix(m.Header.Get("Nats-Subject"), n.bucket.Subject(""))
	revision, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if !ours || err != nil {
		return
	}
	written, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // zero: not known
	n.notify(key, Change{Revision: revision, Written: written, Removal: kv.RemovalOf(m.Header)}, m.Data)
}

// watch receives changes by a watcher until there is reason to use another source. The error says why the watcher does not work.
func (n *Notifier) watch(ctx context.Context, changes <-chan nats.Status) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, all, err := n.startWatcher(ctx)
	if err != nil {
		return err
	}
	defer func() { kv.StopWatcher(w) }()
	n.use(Watch, n.spread())
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
			n.use(Watch, 0)
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
	c := Change{Revision: entry.Revision(), Written: entry.Created()}
	switch entry.Operation() {
	case jetstream.KeyValueDelete:
		c.Removal = kv.Removed
	case jetstream.KeyValuePurge:
		c.Removal = kv.RemovedOrExpired
	}
	n.notify(entry.Key(), c, entry.Value())
}

// notify passes a change on to the listeners of its key.
func (n *Notifier) notify(key string, c Change, value []byte) {
	v := written{value: value, revision: c.Revision}
	for _, l := range n.of(key) {
		l.receive(c, &v)
	}
}

// written is a value that was written. It is parsed when the first listener needs that, and mostly none does: what is received most
// are renewals, which differ from one another by the id of the attempt alone.
type written struct {
	value    []byte
	revision uint64
	parsed   bool
	record   record.Record
}

func (w *written) parse() record.Record {
	if !w.parsed {
		w.record, w.parsed = record.Parse(w.value, w.revision), true
	}
	return w.record
}

var attemptField = []byte(`"attempt":"`)

// formSeed has hashes of this process differ from those that somebody else could reckon with.
var formSeed = maphash.MakeSeed()

// formOf returns a hash of a record without the id of its attempt: two renewals that follow each other differ by that alone. It is 0 for
// a value that has no such id.
func formOf(value []byte) uint64 {
	i := bytes.Index(value, attemptField) + len(attemptField)
	if i < len(attemptField) {
		return 0
	}
	end := bytes.IndexByte(value[i:], '"')
	if end < 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(formSeed)
	_, _ = h.Write(value[:i])
	_, _ = h.Write(value[i+end:])
	return max(1, h.Sum64())
}
