package sim

import (
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/sim/judge"
)

// watcher is one candidate's watch of the key. Notifications come in order, each after a while, unless a fault holds them.
type watcher struct {
	v        *view
	updates  chan jetstream.KeyValueEntry
	queue    []delivery
	timer    *time.Timer
	stalled  bool
	ended    bool
	last     *judge.Entry // the last that was delivered, without forgeries
	lastAt   time.Time
	previous *judge.Entry // the one before last
	forgedAt time.Time    // when a forged or replayed notification was last delivered
}

// delivery is a notification on its way. entry is nil for the end of the initial state.
type delivery struct {
	at     time.Time
	entry  *judge.Entry
	forged bool
}

// watchBuffer is how many notifications nats.go keeps for a reader.
const watchBuffer = 256

func newWatcher(v *view) *watcher {
	x := &watcher{v: v, updates: make(chan jetstream.KeyValueEntry, watchBuffer)}
	x.timer = time.AfterFunc(math.MaxInt64, x.deliver)
	v.w.server.watchers = append(v.w.server.watchers, x)
	return x
}

// send sends a notification on its way, unless a fault stops it. The caller holds the world's mutex.
func (x *watcher) send(now time.Time, e *judge.Entry) {
	w, slot := x.v.w, x.v.c.slot
	if x.stalled || x.v.c.crashed {
		return
	}
	if now.Before(slot.cutUntil) {
		if slot.catchesUp {
			x.enqueue(delivery{at: slot.cutUntil, entry: e})
		}
		return
	}
	at := now.Add(w.script.latency)
	for i, f := range w.faults {
		if !f.hits(slot.index) {
			continue
		}
		chance := mix(w.script.seed, uint64(slot.index), e.Revision, uint64(i), 11)
		if float64(chance%1000) >= f.chance*1000 {
			continue
		}
		switch f.kind {
		case notificationMissed:
			w.count(f.kind.String())
			return
		case notificationLate:
			w.count(f.kind.String())
			at = at.Add(time.Duration(mix(chance) % uint64(f.delay)))
		}
	}
	x.enqueue(delivery{at: at, entry: e})
}

func (x *watcher) enqueue(d delivery) {
	if n := len(x.queue); n > 0 && d.at.Before(x.queue[n-1].at) {
		d.at = x.queue[n-1].at
	}
	if x.queue = append(x.queue, d); len(x.queue) == 1 {
		x.timer.Reset(max(time.Until(d.at), 0))
	}
}

// deliver delivers all notifications that are due. A frozen process receives none.
func (x *watcher) deliver() {
	w := x.v.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if left := x.v.c.slot.frozenUntil.Sub(now); left > 0 {
		x.timer.Reset(left)
		return
	}
	for len(x.queue) > 0 && !x.ended {
		next := x.queue[0]
		if next.at.After(now) {
			x.timer.Reset(next.at.Sub(now))
			return
		}
		x.queue = x.queue[1:]
		x.deliverOne(now, next)
	}
}

// deliverOne delivers one notification. A reader that is too slow misses it. The judge ignores forgeries, because they bind
// nobody.
func (x *watcher) deliverOne(now time.Time, d delivery) {
	var received jetstream.KeyValueEntry
	e, note := d.entry, ""
	if e != nil {
		received, note = update{e}, opText[e.Op]
	}
	switch {
	case d.forged:
		x.forgedAt, note = now, "forged or replayed "+note+string(e.Value)
	case e != nil:
		x.previous, x.last, x.lastAt = x.last, e, now
	}
	select {
	case x.updates <- received:
		if e != nil {
			x.v.w.trace.Notified(x.v.c.ledger, e)
			x.v.w.journal.Add(judge.Event{At: now, Name: x.v.c.name, What: "is notified", A: e.Revision, Note: note})
		}
		x.v.w.checkSoon()
	default:
	}
}

var opText = map[jetstream.KeyValueOp]string{jetstream.KeyValueDelete: "deletion", jetstream.KeyValuePurge: "purge or expiry"}

// Updates returns the channel of notifications.
func (x *watcher) Updates() <-chan jetstream.KeyValueEntry { return x.updates }

// Stop ends the watch and closes the channel.
func (x *watcher) Stop() error {
	x.v.w.mu.Lock()
	defer x.v.w.mu.Unlock()
	x.end()
	return nil
}

// end is Stop for a caller that holds the world's mutex.
func (x *watcher) end() {
	if x.ended {
		return
	}
	x.ended = true
	x.timer.Stop()
	close(x.updates)
	s := x.v.w.server
	s.watchers = slices.DeleteFunc(slices.Clone(s.watchers), func(other *watcher) bool { return other == x })
}

// update is an entry as the library reads it.
type update struct{ e *judge.Entry }

func (u update) Bucket() string                  { return bucketName }
func (u update) Key() string                     { return electionKey }
func (u update) Value() []byte                   { return u.e.Value }
func (u update) Revision() uint64                { return u.e.Revision }
func (u update) Created() time.Time              { return u.e.Stamped }
func (u update) Delta() uint64                   { return 0 }
func (u update) Operation() jetstream.KeyValueOp { return u.e.Op }
