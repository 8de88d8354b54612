package sim

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
)

// source is one candidate's source of notifications, with what package notify does about it: the subject on which the bucket republishes
// what it commits, where the candidate knows its connection and the bucket republishes, or a watcher. Notifications come in order, each after a
// while, unless a fault holds them.
type source struct {
	c       *candidate
	kind    string         // in use
	open    bool           // the server sends notifications
	created time.Time      // when the bucket was created that it reports of
	began   time.Time      // when it was last started
	remakes *virtual.Timer // starts it anew
	lost    bool           // the subscription was found to be stalled: a watcher is next

	queue      []delivery
	timer      *virtual.Timer
	stalled    bool         // without a sign
	mutedUntil time.Time    // until then notifications are lost, without a sign
	last       *judge.Entry // the last that was delivered, without forgeries
	lastAt     time.Time
	previous   *judge.Entry // the one before last
	forgedAt   time.Time    // when a forged or replayed notification was last delivered
}

// delivery is a notification on its way.
type delivery struct {
	at     time.Time
	entry  *judge.Entry
	forged bool
}

const (
	sourceInterval = time.Second      // from the start of one source to that of the next, at least
	sourceRetry    = 30 * time.Second // until a candidate without a source tries again
	readyTimeout   = 100 * time.Millisecond
)

// start starts the best source there is, and calls ready once it is in use, or cannot be, or after a moment.
func (x *source) start(ready func()) {
	if ready != nil {
		x.c.w.After(readyTimeout, ready)
	}
	x.began, x.stalled, x.queue = x.c.w.Now, false, nil
	if x.c.plan.connected && x.c.w.script.republishes && !x.lost {
		x.subscribe(ready)
		return
	}
	x.watch(ready)
}

// subscribe subscribes to what the bucket republishes.
func (x *source) subscribe(ready func()) {
	w := x.c.w
	w.After(2*w.script.latency, func() {
		x.c.act(func() {
			if !x.c.running || w.Now.Before(x.c.slot.cutUntil) {
				return // until the connection is made again
			}
			x.use(core.Republish, true, ready)
		})
	})
}

// watch starts a watcher, which begins with what is stored.
func (x *source) watch(ready func()) {
	x.lost = false
	if x.c.plan.noWatch {
		x.none(ready)
		return
	}
	w := x.c.w
	x.c.call(&request{op: opWatch, limit: w.Now.Add(2 * time.Second), then: func(r core.Result) {
		if !x.c.running {
			return
		}
		if r.Err != nil {
			x.none(ready)
			return
		}
		x.use(core.Watch, true, ready)
		if e := w.server.current; e != nil {
			x.enqueue(delivery{at: w.Now, entry: e})
		}
	}})
}

// none has the candidate do without a source for a while.
func (x *source) none(ready func()) {
	x.kind, x.open = core.NoSource, false
	x.c.tell(core.SourceChanged{Source: core.NoSource})
	x.restart(sourceRetry)
	if ready != nil {
		ready()
	}
}

// use has the candidate know which source is in use.
func (x *source) use(kind string, spread bool, ready func()) {
	x.kind, x.open = kind, true
	x.lastAt = timeutil.Later(x.lastAt, x.c.w.Now)
	x.c.ledger.Missed(x.c.w.Now)
	x.c.tell(core.SourceChanged{Source: kind, Spread: spread})
	if ready != nil {
		ready()
	}
}

// restart starts the source anew after a while. The server is asked about the bucket before: it may be another by now.
func (x *source) restart(after time.Duration) {
	x.remakes.Stop()
	x.remakes = x.c.w.After(max(after, x.began.Add(sourceInterval).Sub(x.c.w.Now)), func() {
		x.c.act(func() {
			if !x.c.running {
				return
			}
			x.c.call(&request{op: opStatus, limit: x.c.w.Now.Add(2 * time.Second), then: func(r core.Result) {
				if r.Err == nil && !r.Bucket.Created.Equal(x.created) {
					x.created = r.Bucket.Created
					x.c.tell(core.SourceMoved{Created: x.created})
				}
				if x.c.running {
					x.start(nil)
				}
			}})
		})
	})
}

// remake starts the source anew, as the candidate asks for.
func (x *source) remake() {
	if !x.remakes.Waits() || x.remakes.At.After(x.c.w.Now.Add(sourceInterval)) {
		x.close()
		x.restart(0)
	}
}

// stalls is called when the candidate finds the source stalled. A subscription is asked whether that is so; then a watcher takes its place.
func (x *source) stalls() {
	w := x.c.w
	if x.kind != core.Republish {
		x.remake()
		return
	}
	w.After(2*w.script.latency, func() {
		x.c.act(func() {
			if x.c.running && x.kind == core.Republish && x.c.core.SourceOverdue() {
				x.close()
				x.kind, x.lost = core.NoSource, true
				x.c.tell(core.SourceLost{})
				x.restart(0)
			}
		})
	})
}

// reconnected is called when the connection was made again: a subscription goes on, and a watcher is made anew.
func (x *source) reconnected() {
	x.c.reconnects++
	if !x.c.plan.connected || !x.c.running {
		return
	}
	x.c.ledger.Missed(x.c.w.Now)
	x.c.tell(core.Reconnected{At: x.c.now()})
	switch x.kind {
	case core.Republish:
		x.stalled = false
		x.use(core.Republish, true, nil)
	case core.Watch:
		x.remake()
	}
}

// close has the server send no more notifications.
func (x *source) close() {
	x.open, x.queue = false, nil
	x.timer.Stop()
}

// end ends the source with the run. What it delivered does not count in the next run: much may be missed in between.
func (x *source) end() {
	x.close()
	x.remakes.Stop()
	x.kind, x.lost = core.NoSource, false
	x.last, x.lastAt, x.previous = nil, time.Time{}, nil
}

// breaks ends a watcher, which the candidate notices.
func (x *source) breaks() {
	if x.kind == core.Watch {
		x.remake()
	}
}

// delivered returns the last entry that the present source delivered, when, and the entry before.
func (x *source) delivered() (last *judge.Entry, at time.Time, previous *judge.Entry) {
	if !x.open {
		return nil, time.Time{}, nil
	}
	return x.last, x.lastAt, x.previous
}

// send sends a notification on its way, unless a fault stops it.
func (x *source) send(e *judge.Entry) {
	w, slot := x.c.w, x.c.slot
	if !x.open || x.stalled || x.c.crashed || w.Now.Before(x.mutedUntil) {
		return
	}
	if w.Now.Before(slot.cutUntil) {
		if slot.catchesUp {
			x.enqueue(delivery{at: slot.cutUntil, entry: e})
		}
		return
	}
	at := w.Now.Add(w.script.latency)
	for i, f := range w.faults {
		if !f.hits(slot.index) {
			continue
		}
		chance := virtual.Mix(w.script.seed, uint64(slot.index), e.Revision, uint64(i), 11)
		if float64(chance%1000) >= f.chance*1000 {
			continue
		}
		switch f.kind {
		case notificationMissed:
			w.count(f.kind.String())
			return
		case notificationLate:
			w.count(f.kind.String())
			at = at.Add(time.Duration(virtual.Mix(chance) % uint64(f.delay)))
		}
	}
	x.enqueue(delivery{at: at, entry: e})
}

func (x *source) enqueue(d delivery) {
	if n := len(x.queue); n > 0 && d.at.Before(x.queue[n-1].at) {
		d.at = x.queue[n-1].at
	}
	if x.queue = append(x.queue, d); len(x.queue) == 1 {
		x.timer = x.c.w.At(d.at, func() { x.c.act(x.deliver) })
	}
}

// deliver delivers all notifications that are due.
func (x *source) deliver() {
	for len(x.queue) > 0 && x.open {
		next := x.queue[0]
		if next.at.After(x.c.w.Now) {
			x.timer = x.c.w.At(next.at, func() { x.c.act(x.deliver) })
			return
		}
		x.queue = slices.Clone(x.queue[1:])
		x.deliverOne(next)
	}
}

// deliverOne delivers one notification. The judge ignores forgeries, because they bind nobody.
func (x *source) deliverOne(d delivery) {
	w, e := x.c.w, d.entry
	note := opText[e.Op]
	if d.forged {
		x.forgedAt, note = w.Now, "forged or replayed "+note+string(e.Value)
	} else {
		x.previous, x.last, x.lastAt = x.last, e, w.Now
	}
	w.journal.Add(judge.Event{At: w.Now, Name: x.c.name, What: "is notified", A: e.Revision, Note: note})
	x.c.tell(x.c.notification(e, x.kind))
	w.checkSoon()
}

var opText = map[jetstream.KeyValueOp]string{jetstream.KeyValueDelete: "deletion", jetstream.KeyValuePurge: "purge or expiry"}
