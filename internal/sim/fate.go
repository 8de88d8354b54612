package sim

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fate is what befalls one call.
type fate struct {
	before   time.Duration // how much later than usual the request arrives
	after    time.Duration // and the reply
	lost     bool          // whether the request is
	mute     bool          // whether the reply is
	err      error         // what is answered in place of the server, after the time above
	conflict bool
	quorum   bool          // whether the write waits for a quorum, in the way of others
	edge     bool          // whether the renewal arrives in the last moment of the key's life
	stale    time.Duration // how old what is read is
	blind    bool          // whether the read that a create may need fails
	hangs    bool          // and only when the time of the call is up
	coin     bool
}

// Limits to what is believable.
const (
	noStreamTime  = 500 * time.Millisecond // two tries of nats.go
	edgeTime      = time.Millisecond / 2   // before the expiry
	staleLimit    = 100 * time.Millisecond // behind
	conflictLimit = 50 * time.Millisecond
)

// fate decides by the seed what befalls the nth call of its kind that a candidate makes.
func (w *world) fate(c *candidate, o op, n uint64) fate {
	draw := mix(w.script.seed, uint64(c.slot.index), uint64(c.number), uint64(o), n)
	f := fate{coin: draw&1 == 1}
	switch {
	case c.unread && o == opGet, c.lost && o == opStatus:
		f.lost = true
		return f
	case c.unread && o == opCreate:
		f.blind, f.hangs = true, true
	}
	for i, a := range w.active {
		if !a.hits(c.slot.index) {
			continue
		}
		chance := mix(draw, uint64(i))
		if float64(chance%1000) < a.chance*1000 && w.befall(&f, a, o, time.Duration(mix(chance, 5)%uint64(a.delay))) {
			w.hit(a.kind)
		}
	}
	return f
}

// befall lets a fault have its way with a call, and says whether it can have.
func (w *world) befall(f *fate, a *window, o op, delay time.Duration) bool {
	switch {
	case a.kind == lateRequest:
		f.before += delay
	case a.kind == lostRequest, a.kind == serverAway && f.coin:
		f.lost = true
	case a.kind == lateReply:
		f.after += delay
	case a.kind == lostReply:
		f.mute = true
	case a.kind == noStream, a.kind == serverAway:
		f.err, f.after = jetstream.ErrNoStreamResponse, noStreamTime
	case a.kind == conflict && o.writes():
		f.conflict = true
	case a.kind == noQuorum && o.writes() && w.script.replicated && time.Now().After(w.server.inFlight):
		f.quorum, w.server.inFlight = true, a.until
		f.before = max(f.before, time.Until(a.until))
	case a.kind == staleRead && o == opGet:
		f.stale = min(delay, staleLimit)
	case a.kind == readFails && o == opCreate:
		f.blind, f.hangs = true, f.coin
	case a.kind == readFails && o == opGet, a.kind == statusFails && o == opStatus:
		if f.lost = f.coin; !f.lost {
			f.err = nats.ErrNoResponders
		}
	case a.kind == edgeRenewal && o == opUpdate && w.server.current != nil && w.script.markers:
		left := time.Until(w.server.current.expires) - edgeTime - w.script.latency
		if left < 0 {
			return false
		}
		f.edge, f.before = true, left
	default:
		return false
	}
	return true
}
