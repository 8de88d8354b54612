package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/shell"
)

// Callbacks and work: the goroutines that run them, and what becomes of panics. Package shell decides which is due.

// functions returns the callbacks of a call.
func (r *run) functions(call shell.Call) (functions []func()) {
	o := &r.opts.Callbacks
	switch call.Kind {
	case shell.Won:
		return o.OnWon
	case shell.Lost:
		return o.OnLost
	case shell.Next:
		for _, f := range o.OnNext {
			functions = append(functions, func() { f(call.Next) })
		}
	case shell.Leader:
		h := r.holder(call.Leader)
		for _, f := range o.OnLeader {
			functions = append(functions, func() { f(h) })
		}
	case shell.Campaign:
		for _, f := range o.OnCampaign {
			functions = append(functions, func() { f(call.State) })
		}
	}
	return functions
}

// callCallbacks calls callbacks, one at a time, until none is due. Its goroutine exists only while a callback is due.
func (r *run) callCallbacks() {
	for f := r.nextCallback(); f != nil; f = r.nextCallback() {
		r.callGuarded(f)
	}
}

// nextCallback returns the callback to call; nil if none is due. All callbacks of a kind are called before those of another.
func (r *run) nextCallback() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.callbacks) == 0 {
		call, due := r.shell.NextCall(time.Now())
		if !due {
			return nil
		}
		r.callbacks = r.functions(call)
	}
	f := r.callbacks[0]
	r.callbacks = r.callbacks[1:]
	return f
}

// discardCalls drops the campaigns and the leader that wait to be announced, and reports whether no callback is being called.
func (r *run) discardCalls() (idle bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shell.Discard()
}

// callGuarded calls a callback. It logs a panic, and starts another goroutine if the callback ends this one, as by runtime.Goexit.
func (r *run) callGuarded(callback func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			r.log.Error("Callback panicked", "panic", p, "stack", string(debug.Stack()))
			return
		}
		r.log.Error("Callback ended its goroutine")
		go r.callCallbacks()
	}()
	callback()
	returned = true
}

// doWork does the work of a term.
func (r *run) doWork(t *activeTerm) {
	err := errors.New("work ended its goroutine")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("work panicked: %v\n%s", p, debug.Stack())
		}
		r.workReturned(t, err)
	}()
	err = r.work(t.ctx, t.public)
}

// workReturned is called when the work of a term has returned.
func (r *run) workReturned(t *activeTerm, err error) {
	why := core.WorkEnded
	if errors.Is(err, ErrNotLeader) { // as a fenced write that was refused reports
		why = core.Resigned
	}
	var led bool
	r.beside(func(_ *run, now time.Time) (events []core.Event) {
		led, events = r.shell.WorkReturned(now, &t.Term, why, err)
		return events
	})
	switch {
	case led && why == core.Resigned:
		r.log.Info("Work does not lead by its own account, resigning", "error", err)
	case !led && err != nil && !errors.Is(err, context.Canceled):
		r.log.Warn("Work failed after its term had ended", "error", err)
	}
}
