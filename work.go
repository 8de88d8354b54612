package election

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// work is one call of the function given to Run.
type work struct {
	caller atomic.Uint64 // the goroutine that it runs on
	done   chan struct{} // closed when it has returned; err and led are written before
	err    error
	led    bool // whether it returned while it still led
}

// begin starts the work of a term.
func (e *Election) begin(t *tenure, do func(context.Context, Term) error) {
	w := &work{done: make(chan struct{})}
	t.work = w
	e.mu.Lock()
	e.current.work = w
	e.mu.Unlock()
	go func() {
		defer close(w.done)
		w.caller.Store(goroutine())
		w.err = guarded(t, do)
		w.led = t.end(reasonWorkEnded)
	}()
}

// guarded calls the work and turns a panic, or the end of its goroutine, into an error.
func guarded(t *tenure, do func(context.Context, Term) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("work panicked: %v\n%s", p, debug.Stack())
		}
	}()
	err = do(t.ctx, t.term)
	returned = true
	return err
}

// returned returns a channel that is closed when the work has returned, nil if there is none.
func (w *work) returned() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.done
}
