package election

import (
	"context"
	"errors"
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
		w.caller.Store(goroutine())
		w.err = errors.New("work ended its goroutine")
		defer func() {
			if errors.Is(w.err, ErrNotLeader) { // as what receives the work's writes has told it
				t.end(reasonResigned)
			} else {
				w.led = t.end(reasonWorkEnded)
			}
			close(w.done)
		}()
		w.err = guarded(t, do)
	}()
}

// guarded calls the work and turns a panic into an error.
func guarded(t *tenure, do func(context.Context, Term) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("work panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return do(t.ctx, t.term)
}

// returned returns a channel that is closed when the work has returned, nil if there is none.
func (w *work) returned() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.done
}
