package sim

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// fate is what happens to one call.
type fate struct {
	requestDelay time.Duration // beyond the latency
	replyDelay   time.Duration
	requestLost  bool
	replyLost    bool
	err          error // an answer in place of the server's, after replyDelay
	conflict     bool
	waits        bool          // the write waits for a quorum, and blocks others
	atExpiry     bool          // the renewal arrives in the last moment of the key's life
	stale        time.Duration // how old the state is that a read returns
	cannotRead   bool          // the read that a create may need fails …
	hangs        bool          // … only when the time of the call is up
	coin         bool
}

// Limits to what is believable.
const (
	noStreamTime = 500 * time.Millisecond // two attempts of nats.go
	expiryLead   = time.Millisecond / 2   // of a renewal before the expiry
)

// fate decides by the seed what happens to the nth call of this kind by a candidate.
func (w *world) fate(c *candidate, o op, n uint64) fate {
	if w.explored != nil {
		return w.explored.fate(o)
	}
	draw := virtual.Mix(w.script.seed, uint64(c.slot.index), uint64(c.number), uint64(o), n)
	f := fate{coin: draw&1 == 1}
	switch {
	case c.noRead && o == opGet, (c.noStatus || w.silent) && o == opStatus:
		f.requestLost = true
		return f
	case c.noRead && o == opCreate:
		f.cannotRead, f.hangs = true, true
	}
	for i, a := range w.faults {
		if !a.hits(c.slot.index) {
			continue
		}
		chance := virtual.Mix(draw, uint64(i))
		if float64(chance%1000) < a.chance*1000 && w.spoil(&f, a, o, time.Duration(virtual.Mix(chance, 5)%uint64(a.delay))) {
			w.count(a.kind.String())
		}
	}
	return f
}

// spoil adds the effect of a fault to a call, and reports whether it has one.
func (w *world) spoil(f *fate, a *activeFault, o op, delay time.Duration) bool {
	switch {
	case a.kind == lateRequest:
		f.requestDelay += delay
	case a.kind == lostRequest, a.kind == serverRestart && f.coin:
		f.requestLost = true
	case a.kind == lateReply:
		f.replyDelay += delay
	case a.kind == lostReply:
		f.replyLost = true
	case a.kind == noStream, a.kind == serverRestart:
		f.err, f.replyDelay = jetstream.ErrNoStreamResponse, noStreamTime
	case a.kind == transientConflict && o.writes():
		f.conflict = true
	case a.kind == noQuorum && o.writes() && w.script.replicated && w.Now.After(w.server.inFlight):
		f.waits, w.server.inFlight = true, a.until
		f.requestDelay = max(f.requestDelay, a.until.Sub(w.Now))
	case a.kind == staleRead && o == opGet:
		f.stale = min(delay, judge.StaleLimit)
	case a.kind == readFails && o == opCreate:
		f.cannotRead, f.hangs = true, f.coin
	case a.kind == readFails && o == opGet, a.kind == statusFails && o == opStatus:
		if f.requestLost = f.coin; !f.requestLost {
			f.err = nats.ErrNoResponders
		}
	case a.kind == renewalAtExpiry && o == opUpdate && w.server.current != nil && w.script.markers:
		left := w.server.expires.Sub(w.Now) - expiryLead - w.script.latency
		if left < 0 {
			return false
		}
		f.atExpiry, f.requestDelay = true, left
	default:
		return false
	}
	return true
}
