package election

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
)

// announcer calls the callbacks, one at a time, from a goroutine that exists only while there is something to tell.
//
// It is told that something changed, not what: when it gets to it, it compares what it announced with how things are. So
// OnWon and OnLost alternate by construction, a callback that takes long skips what is past, and nothing piles up.
type announcer struct {
	onWon, onLost []termCallback
	onCampaign    []func(State)
	onLeader      []func(Leader)
	log           *slog.Logger

	mu        sync.Mutex
	latest    *tenure  // the last that came to lead
	announced *tenure  // the one that OnWon was called for and OnLost was not; nil if none
	campaigns []State  // waiting to be announced
	leader    *Leader  // who is known to lead, if that is to be announced; the zero Leader is nobody
	told      Leader   // who was announced last
	owed      []func() // what is left to call of what is being announced

	idle   chan struct{} // closed once nothing is left to tell; nil if that is so already
	caller atomic.Uint64 // the goroutine that calls the callbacks; 0 if none
}

// maxCampaigns is how many campaigns may wait to be announced; what comes while so many wait is dropped.
const maxCampaigns = 16

// campaign announces a campaign made in state s.
func (a *announcer) campaign(s State) {
	if len(a.onCampaign) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.campaigns) < maxCampaigns {
		a.campaigns = append(a.campaigns, s)
	}
	a.wake()
}

// leads makes known who leads, the zero Leader if nobody does. One who is about to lead is nobody yet.
func (a *announcer) leads(l Leader) {
	if len(a.onLeader) == 0 || l.Instance != "" && l.Term == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader = &l; a.told.Name == l.Name && a.told.Instance == l.Instance && a.told.Term == l.Term {
		a.leader = nil // and what was to be announced meanwhile is past
		return
	}
	a.wake()
}

// leadership makes known that t came to lead, or no longer does.
func (a *announcer) leadership(t *tenure) {
	if len(a.onWon)+len(a.onLost) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest = t
	a.wake()
}

// silence returns a channel that is closed once no callback is running or owed.
func (a *announcer) silence() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle != nil {
		return a.idle
	}
	done := make(chan struct{})
	close(done)
	return done
}

// hush drops the campaigns that wait to be announced, and returns what silence does.
func (a *announcer) hush() <-chan struct{} {
	a.mu.Lock()
	a.campaigns, a.leader, a.told = nil, nil, Leader{}
	a.mu.Unlock()
	return a.silence()
}

// wake starts the goroutine unless it runs. The caller holds mu.
func (a *announcer) wake() {
	if a.idle == nil {
		a.idle = make(chan struct{})
		go a.run()
	}
}

// run calls callbacks until none is owed.
func (a *announcer) run() {
	a.caller.Store(goroutine())
	for {
		call := a.next()
		if call == nil {
			return
		}
		a.guard(call)
	}
}

// next returns the callback to call, or ends the goroutine's task.
func (a *announcer) next() func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		switch {
		case len(a.owed) > 0: // all have heard of a win before any hears of its loss
			call := a.owed[0]
			a.owed = a.owed[1:]
			return call
		case a.announced != nil && a.announced.lease.Load().state != LeaderState:
			a.owe("OnLost", a.onLost, a.announced)
			a.announced = nil
		case a.announced == nil && a.latest != nil && a.latest.leads():
			a.announced = a.latest
			a.owe("OnWon", a.onWon, a.announced)
		case a.leader != nil:
			l := *a.leader
			a.told, a.leader = l, nil
			for _, f := range a.onLeader {
				a.owed = append(a.owed, func() { f(l) })
			}
		case len(a.campaigns) > 0:
			s := a.campaigns[0]
			a.campaigns = a.campaigns[1:]
			for _, f := range a.onCampaign {
				a.owed = append(a.owed, func() { f(s) })
			}
		default:
			a.caller.Store(0)
			close(a.idle)
			a.idle = nil
			return nil
		}
	}
}

// owe has the callbacks be called with a term. The caller holds mu.
func (a *announcer) owe(name string, callbacks []termCallback, t *tenure) {
	for _, f := range callbacks {
		a.owed = append(a.owed, func() {
			err := f(t.ctx, t.term)
			if err == nil || name == "OnWon" && t.ctx.Err() != nil && errors.Is(err, t.ctx.Err()) {
				return // or it broke off when it heard of the end of leadership, as it should
			}
			a.log.Warn("Callback failed", "callback", name, "term", t.term.Number, "error", err)
		})
	}
}

// guard calls a callback and survives it: a panic is logged, and a callback that ends its goroutine is replaced.
func (a *announcer) guard(callback func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			a.log.Error("Callback panicked", "panic", p, "stack", string(debug.Stack()))
			return
		}
		a.log.Error("Callback ended its goroutine")
		go a.run()
	}()
	callback()
	returned = true
}

// goroutine returns the number of the calling goroutine, by which Stop and Resign know that they were called by what
// they would wait for. The runtime tells it only at the head of a stack trace, "goroutine 18 [running]:"; it is 0 should
// that ever change, and such a call then waits.
func goroutine() uint64 {
	var buf [64]byte
	head, _ := bytes.CutPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(head, []byte(" "))
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return id
}
