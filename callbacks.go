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
// It is not given events. When it gets to it, it compares what it announced with how things are. So OnWon and OnLost alternate by
// construction, a callback that takes long skips what is past, and nothing piles up.
type dispatcher struct {
	*settings.Callbacks
	log *slog.Logger

	mu        sync.Mutex
	latest    *activeTerm      // the last that came to lead
	announced *activeTerm      // the one that OnWon was called for and OnLost was not; nil if there is none
	campaigns []core.State     // waiting to be announced
	leader    *settings.Holder // known to lead, if that is to be announced
	reported  *settings.Holder // announced last
	queue     []func()         // what is left to call of what is being announced

	idle chan struct{} // closed once nothing is left to call; nil if that is so already
}

// nobody is the leader before anybody led.
var nobody = &settings.Holder{}

// maxCampaigns is how many campaigns may wait to be announced; what comes while so many wait is dropped.
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

// leads announces the leader. A leader-elect is no leader yet.
func (d *dispatcher) leads(h *settings.Holder) {
	if len(d.OnLeader) == 0 || h.LeaderElect() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader = h; d.reported.Name == h.Name && d.reported.Instance == h.Instance && d.reported.Term == h.Term {
		d.leader = nil // and what was to be announced meanwhile is past
		return
	}
	d.wake()
}

// leadership announces that t came to lead, or no longer does.
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

// discard drops the campaigns and the leader that wait to be announced, and returns what quiet does.
func (d *dispatcher) discard() <-chan struct{} {
	d.mu.Lock()
	d.campaigns, d.leader = nil, nil
	d.mu.Unlock()
	return d.quiet()
}

// wake starts the goroutine unless it runs. The caller holds mu.
func (d *dispatcher) wake() {
	if d.idle == nil {
		d.idle = make(chan struct{})
		go d.run()
	}
}

// run calls callbacks until none is due.
func (d *dispatcher) run() {
	for {
		call := d.next()
		if call == nil {
			return
		}
		d.guard(call)
	}
}

// next returns the callback to call; nil if none is due.
func (d *dispatcher) next() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case len(d.queue) > 0: // all learn of a win before any learns of its loss
			call := d.queue[0]
			d.queue = d.queue[1:]
			return call
		case d.announced != nil && d.announced.lease.Load().State != core.Leader:
			d.queue = append(d.queue, d.OnLost...)
			d.announced = nil
		case d.announced == nil && d.latest != nil && d.latest.leads():
			d.announced = d.latest
			d.queue = append(d.queue, d.OnWon...)
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

// guard calls a callback and survives it: a panic is logged, and a goroutine that the callback ends is replaced.
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
	done chan struct{} // closed when it has returned; what follows is written before
	err  error
	led  bool // it returned while it still led
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
			if errors.Is(w.err, ErrNotLeader) { // as a receiver of fenced writes has reported it
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
