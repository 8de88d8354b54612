package witness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// reopenDelay is the pause before a program connects to its witness again, or starts another.
	reopenDelay = time.Second
	// refusedAgainDelay is that pause if the witness of the host has refused the program.
	refusedAgainDelay = 30 * time.Second
)

// Link is the connection to a witness. Once it is closed, that witness releases no term of a group: see [Teller.Flush].
type Link = io.ReadWriteCloser

// Teller tells a witness of the terms of this process. It never keeps its callers waiting: one goroutine writes. It keeps what the witness does not
// know yet, and no history of it: a witness that reads nothing makes it keep no more than the terms of this process and those that it told before.
type Teller struct {
	open   func(ctx context.Context) (Link, error) // nil if the first witness has no successor
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing is told any more
	wake   chan struct{} // receives when there is something to tell

	mu      sync.Mutex
	terms   map[record.Commitment]Term
	told    map[record.Commitment]bool // the terms of which the witness was told, or is being told
	changed map[record.Commitment]bool // the terms of which the witness is to be told, or that they are over
	writing bool                       // what was told is not written yet
	link    Link                       // nil while there is none
	idle    wakeup.Signal              // when all is written, or the link has ended
	closed  bool
}

// NewTeller returns a teller that connects to a witness by open, again whenever the connection ends. first is the first connection; nil if open is to
// make that, too.
func NewTeller(first Link, open func(ctx context.Context) (Link, error), log *slog.Logger) *Teller {
	t := &Teller{open: open, log: log, ended: make(chan struct{}), wake: make(chan struct{}, 1), terms: map[record.Commitment]Term{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.run(first)
	return t
}

// Began tells of a term that has begun, or that changed.
func (t *Teller) Began(term Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := term.Commitment()
	t.terms[c] = term
	if t.link != nil { // else the next witness is told of all terms
		t.changed[c] = true
		wakeup.Send(t.wake)
	}
}

// Over tells of a term that is over.
func (t *Teller) Over(c record.Commitment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over(c)
}

// over is Over. The caller holds mu.
func (t *Teller) over(c record.Commitment) {
	delete(t.terms, c)
	switch {
	case t.link == nil:
	case t.told[c]:
		t.changed[c] = true
		wakeup.Send(t.wake)
	default: // the witness does not know of the term
		delete(t.changed, c)
		t.noteIdle()
	}
}

// isIdle reports whether the witness knows everything. The caller holds mu.
func (t *Teller) isIdle() bool { return len(t.changed) == 0 && !t.writing }

// noteIdle wakes those that wait until the witness knows everything, if it does. The caller holds mu.
func (t *Teller) noteIdle() {
	if t.isIdle() {
		t.idle.Broadcast()
	}
}

// Flush waits until everything that was told is with the witness, which then knows it whatever happens to this process. If ctx ends before, or if
// there is no witness, Flush sees to it that no witness knows anything older.
func (t *Teller) Flush(ctx context.Context) {
	for {
		t.mu.Lock()
		link, done, idle := t.link, t.isIdle(), t.idle.Wait()
		t.mu.Unlock()
		if link == nil || done {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
			_ = link.Close()
			return
		}
	}
}

// Close tells that all terms are over, and ends the connection.
func (t *Teller) Close() {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		<-t.ended
		return
	}
	t.closed = true
	for c := range t.terms {
		t.over(c)
	}
	t.mu.Unlock()
	flush, cancel := context.WithTimeout(context.Background(), reopenDelay)
	defer cancel()
	t.Flush(flush)
	t.cancel()
	<-t.ended
}

// run writes until the teller is closed, to one witness after the other.
func (t *Teller) run(link Link) {
	defer close(t.ended)
	for warned := ""; t.ctx.Err() == nil; {
		var err error
		if link == nil {
			link, err = t.open(t.ctx)
		}
		pause := reopenDelay
		if err == nil {
			warned = ""
			t.serve(link)
			if t.ctx.Err() == nil {
				t.log.Warn("Witness ended, looking for another: until then a leader that dies is replaced when its lease is over")
			}
		} else {
			if warned != err.Error() && t.ctx.Err() == nil {
				t.log.Warn("There is no witness: a leader that dies is replaced when its lease is over", "error", err)
			}
			warned = err.Error()
			if _, refused := errors.AsType[*refusal](err); refused {
				pause = refusedAgainDelay
			}
		}
		link = nil
		if t.open == nil {
			return
		}
		_ = timeutil.Pause(t.ctx, pause)
	}
}

// serve tells one witness of all terms, and then of each change, until the connection ends.
func (t *Teller) serve(link Link) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = link.Close() })()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		readRefusals(link, func(reason string) { t.log.Warn("The witness leaves a term to its lease", "reason", reason) })
	}()
	defer func() { <-gone }()
	defer cancel()
	t.begin(link)
	defer t.finish()
	for {
		for messages := t.take(); len(messages) > 0; messages = t.take() {
			if write(link, messages) != nil {
				return
			}
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// write writes messages, one on each line.
func write(link Link, messages []message) error {
	out := json.NewEncoder(link)
	for i := range messages {
		if err := out.Encode(&messages[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin has a new witness told of all terms.
func (t *Teller) begin(link Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.told, t.changed = link, map[record.Commitment]bool{}, map[record.Commitment]bool{}
	for c := range t.terms {
		t.changed[c] = true
	}
}

// finish forgets a witness.
func (t *Teller) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.told, t.changed, t.writing = nil, nil, nil, false
	t.idle.Broadcast()
}

// take takes what is to be written. If that is nothing, everything is with the witness.
func (t *Teller) take() (messages []message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.changed {
		if term, goesOn := t.terms[c]; goesOn {
			t.told[c] = true
			messages = append(messages, message{Began: &term})
		} else {
			delete(t.told, c)
			messages = append(messages, message{Over: &c})
		}
	}
	clear(t.changed)
	t.writing = len(messages) > 0
	t.noteIdle()
	return messages
}
