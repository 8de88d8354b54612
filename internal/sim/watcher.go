package sim

import (
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watcher is one candidate's watch of the key. Updates come in order, each after a while, unless something keeps them.
type watcher struct {
	v       *view
	updates chan jetstream.KeyValueEntry
	queue   []due
	timer   *time.Timer
	blind   bool
	ended   bool
	heard   *entry    // the last that was delivered, but for forged and replayed updates
	heardAt time.Time // and when
	before  *entry    // the one before that
	misled  time.Time // when a forged or replayed update was last delivered
}

// due is an update on its way; entry is nil for the end of what stood at the beginning.
type due struct {
	at     time.Time
	entry  *entry
	forged bool // whether the bucket did not send it
}

// watchBuffer is how many updates nats.go keeps for a reader.
const watchBuffer = 256

func newWatcher(v *view) *watcher {
	x := &watcher{v: v, updates: make(chan jetstream.KeyValueEntry, watchBuffer)}
	x.timer = time.AfterFunc(math.MaxInt64, x.deliver)
	v.w.server.ears = append(v.w.server.ears, x)
	return x
}

// push sends an update on its way, if it gets there at all. The caller holds the world's mutex.
func (x *watcher) push(now time.Time, e *entry) {
	w, slot := x.v.w, x.v.c.slot
	if x.blind || x.v.c.crashed {
		return
	}
	if now.Before(slot.cutUntil) {
		if slot.catchesUp {
			x.deliverAt(slot.cutUntil, e)
		}
		return
	}
	at := now.Add(w.script.latency)
	for i, f := range w.active {
		if !f.hits(slot.index) {
			continue
		}
		chance := mix(w.script.seed, uint64(slot.index), e.revision, uint64(i), 11)
		if float64(chance%1000) >= f.chance*1000 {
			continue
		}
		switch f.kind {
		case watchMissed:
			w.hit(f.kind)
			return
		case watchLate:
			w.hit(f.kind)
			at = at.Add(time.Duration(mix(chance) % uint64(f.delay)))
		}
	}
	x.deliverAt(at, e)
}

// deliverAt puts an update of the bucket at the end of the queue.
func (x *watcher) deliverAt(at time.Time, e *entry) { x.schedule(due{at: at, entry: e}) }

func (x *watcher) schedule(d due) {
	if n := len(x.queue); n > 0 && d.at.Before(x.queue[n-1].at) {
		d.at = x.queue[n-1].at
	}
	if x.queue = append(x.queue, d); len(x.queue) == 1 {
		x.timer.Reset(max(time.Until(d.at), 0))
	}
}

// deliver hands over what is due. A process that is paused takes nothing.
func (x *watcher) deliver() {
	w := x.v.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if left := x.v.c.slot.stalledUntil.Sub(now); left > 0 {
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
		x.give(now, next)
	}
}

// give delivers one update. A reader that is too slow misses it. What the bucket did not send obliges nobody: the judge does
// not learn of it.
func (x *watcher) give(now time.Time, d due) {
	var told jetstream.KeyValueEntry
	e, note := d.entry, ""
	if e != nil {
		told, note = update{e}, opText[e.op]
	}
	switch {
	case d.forged:
		x.misled, note = now, "forged or replayed "+note+string(e.value)
	case e != nil:
		x.before, x.heard, x.heardAt = x.heard, e, now
	}
	select {
	case x.updates <- told:
		if e != nil {
			x.v.w.journal.add(event{at: now, who: x.v.c.name, what: "hears", a: e.revision, note: note})
		}
		x.v.w.probeSoon()
	default:
	}
}

var opText = map[jetstream.KeyValueOp]string{jetstream.KeyValueDelete: "deletion", jetstream.KeyValuePurge: "purge or expiry"}

// Updates returns the channel on which updates come.
func (x *watcher) Updates() <-chan jetstream.KeyValueEntry { return x.updates }

// Stop ends the watch and closes the channel.
func (x *watcher) Stop() error {
	x.v.w.mu.Lock()
	defer x.v.w.mu.Unlock()
	x.end()
	return nil
}

// end is what Stop does. The caller holds the world's mutex.
func (x *watcher) end() {
	if x.ended {
		return
	}
	x.ended = true
	x.timer.Stop()
	close(x.updates)
	s := x.v.w.server
	s.ears = slices.DeleteFunc(slices.Clone(s.ears), func(other *watcher) bool { return other == x })
}

// update is an entry as readers see it.
type update struct{ e *entry }

func (u update) Bucket() string                  { return "ELECTIONS" }
func (u update) Key() string                     { return electionKey }
func (u update) Value() []byte                   { return u.e.value }
func (u update) Revision() uint64                { return u.e.revision }
func (u update) Created() time.Time              { return u.e.stamped }
func (u update) Delta() uint64                   { return 0 }
func (u update) Operation() jetstream.KeyValueOp { return u.e.op }
