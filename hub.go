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

	"github.com/natscampaign/election/internal/watch"
)

// How a candidate hears of changes; what Status and the metrics call it.
const (
	sourceRepublish = "republish"
	sourceWatch     = "watch"
	sourceNone      = "none"
)

const (
	// sourceRetry is how long a hub that found no source waits before it looks for one again.
	sourceRetry = 30 * time.Second
	// sourcePause is the least time from the making of one source to that of the next.
	sourcePause = time.Second
	// maxPending is how many bytes of messages may wait to be taken in. What comes beyond that is dropped, as by a source that stalls.
	maxPending = 8 << 20
	// closePatience is how long the end of a hub is waited for: the server is asked to forget a watcher, and may not answer.
	closePatience = 250 * time.Millisecond
)

// hub hears every committed change of one bucket, by one subscription or one watcher for all the elections of this
// process that stand in it, and passes each on to the ears of its key.
//
// The best source is the subject on which the bucket republishes what it commits: a plain subscription, which costs the
// server no consumer. Without it one KV watcher serves. Without that nobody hears anything, and polling goes on. A source
// may go deaf without a sign, so that nobody relies on it alone: a candidate trusts it only while it hears.
type hub struct {
	id     hubID
	bucket jetstream.KeyValue
	js     jetstream.JetStream // nil without WithJetStream
	conn   *nats.Conn          // likewise
	log    *slog.Logger

	source     atomic.Pointer[string]
	lost       atomic.Bool                      // whether the source in use no longer tells of changes, and there is no other yet
	stream     atomic.Pointer[jetstream.Stream] // once somebody asked for it
	created    atomic.Pointer[time.Time]        // when the bucket was created, as the server tells; to tell it from others of its name
	pauseKnown atomic.Bool                      // whether the candidates know which elections are paused: not after a reconnection
	republish  string                           // the subject on which it republishes, empty if it does not; belongs to run
	settled    chan struct{}                    // closed by run when the first source is in use, or there is none
	reading    chan struct{}                    // holds one for each election that has a watcher read a marker
	remake     chan struct{}                    // receives when the source should be made again
	widen      chan struct{}                    // receives when a second key has come: a watcher may be that of the first alone
	deaf       chan struct{}                    // receives when an election found out that the source does not speak

	mu   sync.Mutex // never held across I/O
	ears map[string][]*ear

	counting struct { // serialises the making and ending of the subscription to attempts
		sync.Mutex
		leaders  int
		attempts []*nats.Subscription
	}
	cancel context.CancelFunc
	done   chan struct{}
}

// hubID tells buckets apart: by the connection, the name and when they were created or, where the connection is not
// known, by the handle.
type hubID struct {
	conn    *nats.Conn
	name    string
	created int64
	handle  any
}

// hubs are those of this process.
var hubs struct {
	sync.Mutex
	by map[hubID]*hub
}

// listen returns an ear for the key, on the hub of the bucket, which is started if this is the first. The ear must be
// closed.
func (e *Election) listen(f *facts) *ear {
	a := &ear{election: e, key: e.key, name: e.name, priority: e.opts.priority, fair: e.opts.fair, ttl: f.ttl, asked: time.Now(), news: make(chan struct{}, 1)}
	id := hubID{handle: a} // shared with nobody
	if nc := e.opts.conn(); nc != nil {
		id = hubID{conn: nc, name: e.bucket.Bucket(), created: f.created.UnixNano()}
	} else if reflect.ValueOf(e.bucket).Comparable() {
		id = hubID{handle: e.bucket}
	}

	hubs.Lock()
	defer hubs.Unlock()
	h := hubs.by[id]
	if h == nil {
		h = &hub{
			id: id, bucket: e.bucket, js: e.opts.js, conn: id.conn, republish: f.republish, log: e.opts.slog(), ears: map[string][]*ear{},
			settled: make(chan struct{}), reading: make(chan struct{}, maxMarkerReads), remake: make(chan struct{}, 1), widen: make(chan struct{}, 1), deaf: make(chan struct{}, 1), done: make(chan struct{}),
		}
		h.created.Store(&f.created)
		h.pauseKnown.Store(true)
		if hubs.by == nil {
			hubs.by = map[hubID]*hub{}
		}
		hubs.by[id] = h
		var ctx context.Context
		ctx, h.cancel = context.WithCancel(context.Background())
		defer func() { go h.run(ctx) }() // with this ear
	}
	a.hub = h
	h.mu.Lock()
	h.ears[a.key] = append(slices.Clone(h.ears[a.key]), a)
	second := len(h.ears) == 2 && len(h.ears[a.key]) == 1
	h.mu.Unlock()
	if second {
		signal(h.widen)
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
		case <-time.After(closePatience):
		}
	}
}

// listeners returns the ears for a key. The list is never changed.
func (h *hub) listeners(key string) []*ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ears[key]
}

// signal has a channel that holds one receive at least once more.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// inUse returns the source that is in use, sourceNone until one is.
func (h *hub) inUse() string {
	if s := h.source.Load(); s != nil {
		return *s
	}
	return sourceNone
}

// subject returns the subject of a key.
func (h *hub) subject(key string) string { return "$KV." + h.bucket.Bucket() + "." + key }

// knows says whether the bucket, as far as is known by now, is still the one that was created at the given time.
func (h *hub) knows(created time.Time) bool { return h.created.Load().Equal(created) }

// run keeps the hub on the best source there is.
func (h *hub) run(ctx context.Context) {
	defer close(h.done)
	var desk sync.WaitGroup
	defer desk.Wait()
	var changes chan nats.Status
	if h.conn != nil {
		changes = h.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
		defer h.conn.RemoveStatusListener(changes)
		d := h.open()
		desk.Go(func() { d.serve(ctx) })
		if h.conn.IsClosed() {
			h.closed()
		}
	}
	level := slog.LevelWarn // the first time
	for stalled := false; ctx.Err() == nil; {
		made := time.Now()
		if !stalled && h.conn != nil && h.republish != "" {
			stalled = h.subscribed(ctx, changes)
			h.lost.Store(stalled)
		} else if err := h.watched(ctx, changes); err == nil {
			stalled = false // there may be a better source by now
		} else if ctx.Err() == nil {
			h.log.Log(ctx, level, "Changes of the bucket cannot be heard, polling", "bucket", h.bucket.Bucket(), "error", err)
			level, stalled = slog.LevelDebug, false
			h.use(sourceNone, 0)
			h.settle()
			select {
			case <-ctx.Done():
			case s := <-changes:
				h.connected(s)
			case <-time.After(sourceRetry):
			}
		}
		pause(ctx, time.Until(made.Add(sourcePause)))
		h.look(ctx)
	}
}

// connected takes note that the connection is there again, or closed for good.
func (h *hub) connected(s nats.Status) {
	if s == nats.CLOSED {
		h.closed()
		return
	}
	h.pauseKnown.Store(false)
}

// closed ends the elections of a connection that is closed for good.
func (h *hub) closed() {
	for _, a := range h.all() {
		a.election.failForGood(nats.ErrConnectionClosed)
	}
}

// all returns the ears of all keys.
func (h *hub) all() []*ear {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(h.ears))...)
}

// look reads what may have changed about the bucket.
func (h *hub) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	status, err := h.bucket.Status(ctx)
	if err != nil {
		return // what is known may still be so
	}
	created, republish, _ := describe(status)
	if before := h.created.Swap(&created); !before.Equal(created) {
		for _, a := range h.all() {
			a.newBucket()
		}
	}
	h.republish = republish
	h.heedBy(status)
}

// use makes known which source is in use. Changes may have been missed before it was, so that all keys are read within the
// given time.
func (h *hub) use(source string, within time.Duration) {
	h.source.Store(&source)
	h.lost.Store(false)
	for _, c := range []chan struct{}{h.deaf, h.remake} {
		select {
		case <-c: // that was about the last one
		default:
		}
	}
	for _, a := range h.all() {
		a.renewSource(within)
	}
}

// settle lets those campaign that wait for the first source.
func (h *hub) settle() {
	select {
	case <-h.settled:
	default:
		close(h.settled)
	}
}

// apart is the time over which the candidates of all processes spread what they ask after an event that all of them meet, such
// as a reconnection.
func (h *hub) apart() time.Duration {
	for _, a := range h.all() {
		return a.ttl / 4
	}
	return 0
}

// subscribed hears changes by the bucket's republished messages, until there is reason to make another source. It says
// whether that is because nothing is heard by this one.
func (h *hub) subscribed(ctx context.Context, changes <-chan nats.Status) (stalled bool) {
	before := h.conn.LastError()
	sub, err := h.conn.Subscribe(h.republish, h.republished)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		_ = sub.SetPendingLimits(-1, maxPending)
		err = h.subscriptionRefused(ctx, before)
	}
	if err != nil {
		h.log.Debug("Republished changes cannot be subscribed to", "bucket", h.bucket.Bucket(), "error", err)
		return true
	}
	h.use(sourceRepublish, h.apart())
	h.settle()
	lookSoon := time.NewTimer(0)
	<-lookSoon.C
	defer lookSoon.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case s := <-changes:
			h.connected(s)
			if h.subscriptionRefused(ctx, nil) != nil { // the client has subscribed again before it told
				return true
			}
			h.use(sourceRepublish, h.apart()) // the client subscribes again by itself, but what was said meanwhile is lost
			lookSoon.Reset(randomBelow(h.apart()))
		case <-lookSoon.C:
			h.heed(ctx) // an election may have been paused meanwhile
		case <-h.remake:
			return false
		case <-h.deaf:
			if h.stalled(ctx, sub) {
				h.log.Warn("Republished changes do not arrive", "bucket", h.bucket.Bucket(), "subject", h.republish)
				return true
			}
		}
	}
}

// stalled says whether what the source owes has not arrived, though all has that the server sent until now: a busy host may only be late
// to take it in.
func (h *hub) stalled(ctx context.Context, sub *nats.Subscription) bool {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	if h.conn.FlushWithContext(ctx) != nil {
		return false // the connection tells when it is there again
	}
	for waiting, _, err := sub.Pending(); err == nil && waiting > 0 && pause(ctx, minPause); {
		waiting, _, err = sub.Pending()
	}
	return slices.ContainsFunc(h.all(), (*ear).stalled)
}

// subscriptionRefused returns the error of a server that does not permit the subscription to what the bucket republishes; before is
// the last error that the connection had reported when the subscription was made. While it is unclear, as after a reconnection that
// had several subscriptions refused, the server is asked again, by another subscription.
func (h *hub) subscriptionRefused(ctx context.Context, before error) error {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	what := fmt.Sprintf("Subscription to %q", h.republish)
	unclear, err := refusedSince(ctx, h.conn, before, what)
	for unclear && pause(ctx, randomBelow(askRefusalSpacing)) {
		before = h.conn.LastError()
		probe, failed := h.conn.SubscribeSync(h.republish)
		if failed != nil {
			return nil
		}
		unclear, err = refusedSince(ctx, h.conn, before, what)
		_ = probe.Unsubscribe()
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil // or nobody knows: a source that is stalled is found out later
}

// republished reads one message of the bucket's republishing.
func (h *hub) republished(m *nats.Msg) {
	key, ours := strings.CutPrefix(m.Header.Get("Nats-Subject"), h.subject(""))
	revision, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if !ours || err != nil {
		return
	}
	written, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // zero: not known
	h.tell(key, change{revision: revision, written: written, removal: removalBy(m.Header)}, m.Data)
}

// watched hears changes by a watcher until there is reason to make another source. The error says why it does not.
func (h *hub) watched(ctx context.Context, changes <-chan nats.Status) (err error) {
	defer func() {
		if p := recover(); p != nil { // a bucket that is not of nats.go need not have a watcher
			err = fmt.Errorf("watcher panicked: %v", p)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, wide, err := h.watch(ctx)
	if err == nil && w == nil {
		err = errors.New("there is no watcher")
	}
	if err != nil {
		return err
	}
	defer func() { watch.Stop(w) }()
	h.use(sourceWatch, h.apart())
	h.settle()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-changes: // a watcher may be blind from now on, without a sign
			h.connected(s)
			return nil
		case <-h.remake:
			return nil
		case <-h.widen: // before the other ends, lest a release be missed that one of those that wait was asked to answer
			if wide {
				continue // a second key comes and goes with each lock of a process that has one election besides
			}
			wider, all, err := h.watch(ctx)
			if err != nil || wider == nil {
				return err
			}
			watch.Stop(w)
			w, wide = wider, all
			h.use(sourceWatch, 0)
		case <-h.deaf:
			return nil
		case entry, ok := <-w.Updates():
			if !ok {
				return errors.New("the watcher ended")
			}
			if entry != nil { // nil says that all that is stored in the bucket has been told
				h.entry(entry)
			}
		}
	}
}

// watch makes a watcher of the whole bucket, which is wide, or of the one key that matters: for more a candidate may have
// no permission.
func (h *hub) watch(ctx context.Context) (w jetstream.KeyWatcher, wide bool, err error) {
	select {
	case <-h.widen: // that was about the last one
	default:
	}
	h.mu.Lock()
	keys := slices.Collect(maps.Keys(h.ears))
	h.mu.Unlock()
	if len(keys) == 1 {
		w, err = h.bucket.Watch(ctx, keys[0])
		return w, false, err
	}
	w, err = h.bucket.WatchAll(ctx)
	return w, true, err
}

// entry reads one update of a watcher, which does not tell whether a key was purged or expired.
func (h *hub) entry(entry jetstream.KeyValueEntry) {
	c := change{revision: entry.Revision(), written: entry.Created()}
	switch entry.Operation() {
	case jetstream.KeyValueDelete:
		c.removal = removed
	case jetstream.KeyValuePurge:
		c.removal = removedOrExpired
	}
	h.tell(entry.Key(), c, entry.Value())
}

// tell passes a change on to the ears of its key. One that was written in an earlier bucket of this name, as one may be heard
// across a leaf node, is of no account; one of a later bucket is reason to look.
func (h *hub) tell(key string, c change, value []byte) {
	ears := h.listeners(key)
	if len(ears) == 0 {
		return
	}
	if c.removal == kept {
		c.record = parseRecord(value)
		if !c.record.Bucket.IsZero() && c.record.Bucket.Before(*h.created.Load()) {
			return
		}
	}
	for _, a := range ears {
		a.notify(c)
	}
}

// countAttempts subscribes to the subjects of the keys while there are leaders that count: what is published there are
// attempts, losing ones too.
func (h *hub) countAttempts(on bool) {
	if h.conn == nil {
		return
	}
	c := &h.counting
	c.Lock()
	defer c.Unlock()
	if on {
		c.leaders++
	} else {
		c.leaders--
	}
	switch {
	case c.leaders == 0:
		for _, sub := range c.attempts {
			_ = sub.Unsubscribe()
		}
		c.attempts = nil
	case c.leaders > 0 && c.attempts == nil:
		for _, prefix := range h.attemptPrefixes() {
			sub, err := h.conn.Subscribe(prefix+">", func(m *nats.Msg) {
				if ears := h.listeners(strings.TrimPrefix(m.Subject, prefix)); len(ears) > 0 {
					r := parseRecord(m.Data)
					for _, a := range ears {
						if prefix != h.subject("") && r.Instance == a.election.instance {
							continue // a leader that misses its own attempts does not count: at the hub of a leaf node there may be any number more
						}
						a.attempted(r)
					}
				}
			})
			if err != nil {
				h.log.Debug("Attempts cannot be heard", "bucket", h.bucket.Bucket(), "error", err)
				continue
			}
			_ = sub.SetPendingLimits(-1, maxPending)
			c.attempts = append(c.attempts, sub)
		}
	}
}

// attemptPrefixes returns what the subjects begin with to which candidates publish their attempts: with the API prefix, too, where
// JetStream is reached by one, as on a leaf node by that of a domain.
func (h *hub) attemptPrefixes() []string {
	prefixes := []string{h.subject("")}
	switch opts := h.js.Options(); {
	case opts.Domain != "":
		prefixes = append(prefixes, "$JS."+opts.Domain+".API."+h.subject(""))
	case opts.APIPrefix != "" && opts.APIPrefix != jetstream.DefaultAPIPrefix:
		prefixes = append(prefixes, strings.TrimSuffix(opts.APIPrefix, ".")+"."+h.subject(""))
	}
	return prefixes
}
