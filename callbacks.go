package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/settings"
)

// dispatcher calls the callbacks, one at a time, from a goroutine that exists only while a callback is due.
//
// The dispatcher keeps no queue of events. When its goroutine is ready for the next callback, it compares what was announced with the present state.
// So OnWon and OnLost alternate by construction, a slow callback only skips what is outdated, and nothing piles up.
type dispatcher struct {
	*settings.Callbacks
	log *slog.Logger

	mu        sync.Mutex
	latest    *activeTerm      // the last term whose leadership counted
	announced *activeTerm      // the term for which OnWon was called and OnLost was not; nil if there is none
	campaigns []core.State     // that wait to be announced
	leader    *settings.Holder // the leader that waits to be announced; nil if none does
	reported  *settings.Holder // the leader that was announced last
	next      bool             // this candidate is the next leader, as the leader says
	prepared  bool             // OnNext was called with true, and not with false since
	queue     []func()         // the remaining callbacks of the announcement that is under way

	idle chan struct{} // closed once no callback is due; nil if none is due now
}

// nobody is the leader before anybody led.
var nobody = &settings.Holder{}

// maxCampaigns is how many campaigns may wait to be announced; more are dropped.
const maxCampaigns = 16

// campaign announces a campaign made in state s.
func (d *dispatcher) campaign(s core.State) {
	if len(d.OnCampaign) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.campaigns) < maxCampaigns {
		d.campaigns = append(d.campaigns, s)
	}
	d.wake()
}

// leads announces the leader, if it is another than the one announced last. A leader-elect is no leader yet.
func (d *dispatcher) leads(h *settings.Holder) {
	if len(d.OnLeader) == 0 || h.LeaderElect() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader = h; d.reported.Name == h.Name && d.reported.Instance == h.Instance && d.reported.Term == h.Term {
		d.leader = nil // a leader that waited to be announced meanwhile is outdated
		return
	}
	d.wake()
}

// isNext announces that this candidate is the next leader, or is not any more.
func (d *dispatcher) isNext(next bool) {
	if len(d.OnNext) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = next
	d.wake()
}

// leadership announces that t has begun to lead, or no longer leads.
func (d *dispatcher) leadership(t *activeTerm) {
	if len(d.OnWon)+len(d.OnLost) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = t
	d.wake()
}

// quiet returns a channel that is closed once no callback is running or due.
func (d *dispatcher) quiet() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle != nil {
		return d.idle
	}
	done := make(chan struct{})
	close(done)
	return done
}

// discard drops the campaigns and the leader that wait to be announced, and returns the channel that quiet returns.
func (d *dispatcher) discard() <-chan struct{} {
	d.mu.Lock()
	d.campaigns, d.leader = nil, nil
	d.mu.Unlock()
	return d.quiet()
}

// wake starts the goroutine, unless it is running. The caller holds mu.
func (d *dispatcher) wake() {
	if d.idle == nil {
		d.idle = make(chan struct{})
		go d.run()
	}
}

// run calls callbacks until none is due.
func (d *dispatcher) run() {
	for {
		call := d.due()
		if call == nil {
			return
		}
		d.guard(call)
	}
}

// due returns the callback to call; nil if none is due.
func (d *dispatcher) due() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case len(d.queue) > 0: // every OnWon is called before any OnLost of the same term
			call := d.queue[0]
			d.queue = d.queue[1:]
			return call
		case d.announced != nil && d.announced.lease.Load().State != core.Leader:
			d.queue = append(d.queue, d.OnLost...)
			d.announced = nil
		case d.announced == nil && d.latest != nil && d.latest.leads():
			d.announced = d.latest
			d.queue = append(d.queue, d.OnWon...)
		case d.next != d.prepared:
			next := d.next
			d.prepared = next
			for _, f := range d.OnNext {
				d.queue = append(d.queue, func() { f(next) })
			}
		case d.leader != nil:
			h := d.leader
			d.reported, d.leader = h, nil
			for _, f := range d.OnLeader {
				d.queue = append(d.queue, func() { f(h) })
			}
		case len(d.campaigns) > 0:
			s := d.campaigns[0]
			d.campaigns = d.campaigns[1:]
			for _, f := range d.OnCampaign {
				d.queue = append(d.queue, func() { f(s) })
			}
		default:
			close(d.idle)
			d.idle = nil
			return nil
		}
	}
}

// guard calls a callback. It logs a panic, and starts another goroutine if the callback ends this one, as by runtime.Goexit.
func (d *dispatcher) guard(callback func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			d.log.Error("Callback panicked", "panic", p, "stack", string(debug.Stack()))
			return
		}
		d.log.Error("Callback ended its goroutine")
		go d.run()
	}()
	callback()
	returned = true
}

// work is one call of the function given to Run.
type work struct {
	done chan struct{} // closed when it has returned; the other fields are written before that
	err  error
	led  bool // it returned while its term still led
}

// startWork starts the work of a term.
func startWork(t *activeTerm, do func(context.Context, Term) error) *work {
	w := &work{done: make(chan struct{})}
	go func() {
		w.err = errors.New("work ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				w.err = fmt.Errorf("work panicked: %v\n%s", p, debug.Stack())
			}
			if errors.Is(w.err, ErrNotLeader) { // as a fenced write that was refused reports
				t.end(core.Resigned)
			} else {
				w.led = t.end(core.WorkEnded)
			}
			close(w.done)
		}()
		w.err = do(t.ctx, t.public)
	}()
	return w
}

// returned returns a channel that is closed when the work has returned; nil if there is none.
func (w *work) returned() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.done
}
