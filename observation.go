package election

import (
	"container/list"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/watch"
)

// observation is one call of Observe. Its watcher is made again whenever it may have gone blind, which no watcher tells:
// then it says again what stands, and what that means is found by comparing with what stood there.
type observation struct {
	observer *Observer
	keys     []string
	ttl      time.Duration
	sights   map[string]*sight // by key, of those that are held or were just now: no more than the bucket holds; belongs to run
	told     bool              // whether the current state was told
	queue    *queue
}

// sight is what was last seen of one key.
type sight struct {
	leader   Leader // who held it last
	held     bool
	leading  bool // whether leadership counts, as far as is known
	revision uint64
	written  time.Time
	expires  time.Time // by this host's clock, when a key that is held must have expired
	told     bool      // whether the watcher in use has told of it
}

// observerRetry is how long an observer waits before it tries again what failed.
const observerRetry = time.Second

func (o *observation) watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	return watch.Start(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) {
		if len(o.keys) == 0 {
			return o.observer.bucket.WatchAll(ctx)
		}
		return o.observer.bucket.WatchFiltered(ctx, slices.Clone(o.keys)) // nats.go makes subjects of them in place
	})
}

// run follows the keys until ctx ends, by one watcher after the other.
func (o *observation) run(ctx context.Context, w jetstream.KeyWatcher) {
	var reconnects chan nats.Status
	if nc := o.observer.opts.conn(); nc != nil {
		reconnects = nc.StatusChanged(nats.CONNECTED)
		defer nc.RemoveStatusListener(reconnects)
	}
	level := slog.LevelWarn // the first time
	for {
		if w != nil {
			level = slog.LevelWarn
			o.follow(ctx, w, reconnects)
			watch.Stop(w)
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if w, err = o.watch(ctx); err != nil {
			if ctx.Err() == nil {
				o.observer.log.Log(ctx, level, "Elections cannot be observed for now", "bucket", o.observer.bucket.Bucket(), "error", err)
			}
			level = slog.LevelDebug
			pause(ctx, observerRetry)
		}
	}
}

// follow takes in what a watcher tells, until it ends or may be blind: after a reconnect, or when a key that was held must
// have expired without a word of it, or when nothing at all was told for as long as leaders renew.
func (o *observation) follow(ctx context.Context, w jetstream.KeyWatcher, reconnects <-chan nats.Status) {
	for _, s := range o.sights {
		s.told = false
	}
	heard := time.Now()
	silence := time.NewTimer(o.patience(heard))
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reconnects:
			return
		case <-silence.C:
			rest := o.patience(heard)
			if rest <= 0 {
				return
			}
			silence.Reset(rest)
		case entry, ok := <-w.Updates():
			switch {
			case !ok:
				pause(ctx, observerRetry)
				return
			case entry == nil:
				o.told = true
				o.missing()
			default:
				o.see(entry)
			}
			heard = time.Now()
		}
	}
}

// patience returns how much longer to wait for word since the last one was heard: until the first key that is held must
// have expired, or leaders must have renewed; but no shorter than it takes for a watcher that was just made to speak.
func (o *observation) patience(heard time.Time) time.Duration {
	ends := heard.Add(max(o.ttl, observerRetry) + expiryLateness)
	for _, s := range o.sights {
		if s.held && s.expires.Before(ends) {
			ends = s.expires
		}
	}
	if least := heard.Add(observerRetry); ends.Before(least) {
		ends = least
	}
	return time.Until(ends)
}

// missing finds the keys that were held and of which a new watcher has told nothing: they are gone. They are forgotten when
// the next one tells nothing of them either, for one that lags behind may tell again who held them.
func (o *observation) missing() {
	for key, s := range o.sights {
		switch {
		case s.told:
		case !s.held:
			delete(o.sights, key)
		default:
			kind := Evicted
			if !time.Now().Before(s.expires.Add(-expiryLateness)) {
				kind = Expired
			}
			s.held = false
			o.tell(kind, key, s.leader, time.Now())
		}
	}
}

// see takes in one entry of the bucket.
func (o *observation) see(entry jetstream.KeyValueEntry) {
	key := entry.Key()
	s := o.sights[key]
	if s == nil {
		s = &sight{}
	}
	s.told = true
	if s.revision == entry.Revision() && s.written.Equal(entry.Created()) {
		return // it is told again by a new watcher
	}
	s.revision, s.written = entry.Revision(), entry.Created()
	if entry.Operation() != jetstream.KeyValuePut {
		delete(o.sights, key)
		if s.held {
			o.tell(s.removal(entry, o.ttl), key, s.leader, entry.Created())
		}
		return
	}
	r := parseRecord(entry.Value())
	if _, released := r.released(); released {
		delete(o.sights, key)
		if s.held {
			kind := Released
			if s.leader.Instance != r.Instance && (s.leader.Instance != "" || s.leader.Name != r.Name) {
				kind = Evicted // and what took its place was released since
			}
			o.tell(kind, key, s.leader, entry.Created())
		}
		return
	}
	o.sights[key] = s
	o.held(s, r.leader(key, entry.Revision(), entry.Created(), o.ttl), r.Won)
}

// removal returns what the removal of a key that was held means. A watcher does not tell expiry from a purge, but servers
// are never early.
func (s *sight) removal(entry jetstream.KeyValueEntry, ttl time.Duration) EventKind {
	switch {
	case entry.Operation() == jetstream.KeyValuePurge && entry.Created().Sub(s.leader.Renewed) >= ttl:
		return Expired
	case s.leader.Instance == "" && entry.Operation() == jetstream.KeyValueDelete:
		return Released // which is how those let go that write bare names
	}
	return Evicted
}

// held takes in that l holds the key, which it won over what it says.
func (o *observation) held(s *sight, l Leader, over reason) {
	before, was := s.leader, s.held
	s.leader, s.held, s.expires = l, true, time.Now().Add(o.ttl+expiryLateness)
	same := was && before.Instance == l.Instance && before.Name == l.Name && before.Since.Equal(l.Since)
	if !same {
		if was {
			o.tell(lost(before, l, over, o.ttl), l.Key, before, l.Renewed)
		}
		s.leading = false
	}
	// A bare name does not tell whether leadership counts: it does from the first renewal.
	leading := l.Term != 0 || same && l.Instance == ""
	if !same && (!leading || o.told) { // with a history of one, the record of the win may be gone already
		o.tell(Elected, l.Key, l, l.Renewed)
	}
	switch {
	case leading && !s.leading:
		o.tell(Leading, l.Key, l, l.Renewed)
	case same:
		o.tell(Renewed, l.Key, l, l.Renewed)
	}
	s.leading = leading
}

// lost returns how a holder lost the key to another, of which nothing was told: with a history of one, what came between
// may be gone already.
func lost(before, after Leader, over reason, ttl time.Duration) EventKind {
	switch {
	case over == reasonReleased:
		return Released
	case after.Renewed.Sub(before.Renewed) >= ttl:
		return Expired
	}
	return Evicted
}

func (o *observation) tell(kind EventKind, key string, l Leader, at time.Time) {
	o.queue.push(Event{Kind: kind, Key: key, Leader: l, At: at.UTC().Round(0)})
}

// queue holds events for a reader that takes its time. The first maxWaiting wait in order. Behind these waits no more than
// the latest event of each key, so that the queue grows with the keys and not with the changes.
type queue struct {
	mu     sync.Mutex
	events []Event                  // the first, in order
	late   *list.List               // of Event: the latest of each key behind the first, by when the key fell behind
	byKey  map[string]*list.Element // of late
	held   map[string]bool          // the keys that are held in the eyes of a reader of the first events
	ready  chan struct{}            // receives after each push, at least once
}

// maxWaiting is how many events wait in order.
const maxWaiting = 1000

func newQueue() *queue {
	return &queue{late: list.New(), byKey: map[string]*list.Element{}, held: map[string]bool{}, ready: make(chan struct{}, 1)}
}

func (q *queue) push(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waits := q.byKey[e.Key]
	switch {
	case len(q.events) < maxWaiting: // and nothing is late
		q.admit(e)
	case waits == nil:
		q.byKey[e.Key] = q.late.PushBack(e)
	case e.ends() && !q.held[e.Key]: // the key came and went unseen
		q.late.Remove(waits)
		delete(q.byKey, e.Key)
	default:
		if before := waits.Value.(Event); e.Kind == Renewed && before.Kind < Renewed { // the same term's
			e.Kind, e.At = before.Kind, before.At
		}
		waits.Value = e
	}
	signal(q.ready)
}

// admit puts an event behind the first. The caller holds mu.
func (q *queue) admit(e Event) {
	q.events = append(q.events, e)
	if e.ends() {
		delete(q.held, e.Key)
	} else {
		q.held[e.Key] = true
	}
}

// next takes the event that has waited longest; false if none waits.
func (q *queue) next() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return Event{}, false
	}
	e := q.events[0]
	q.events[0] = Event{} // lest the array hold on to it
	q.events = q.events[1:]
	if first := q.late.Front(); first != nil {
		late := q.late.Remove(first).(Event)
		delete(q.byKey, late.Key)
		q.admit(late)
	}
	return e, true
}

// pump passes events on until ctx ends, and closes the channel.
func (q *queue) pump(ctx context.Context, out chan<- Event) {
	defer close(out)
	for {
		e, waits := q.next()
		if !waits {
			select {
			case <-q.ready:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- e:
		case <-ctx.Done():
			return
		}
	}
}
