package witness

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

// reopenDelay is the pause before a program connects to its witness again, or starts another.
const reopenDelay = time.Second

// Link is the connection to a witness. Once it is closed, that witness releases no term of a group: see [Teller.Flush].
type Link = io.ReadWriteCloser

// Teller tells a witness of the terms of this process. It never keeps its callers waiting: one goroutine writes.
type Teller struct {
	open   func(ctx context.Context) (Link, error)
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing is told any more
	wake   chan struct{} // receives when there is something to tell

	mu     sync.Mutex
	terms  map[record.Commitment]Term
	queue  []message
	busy   bool          // the writer has messages that are not written yet
	link   Link          // nil while there is none
	told   wakeup.Signal // when the queue has been written, or the link has ended
	closed bool
}

// NewTeller returns a teller that connects to a witness by open, again whenever the connection ends. The first connection is given.
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
	t.terms[term.Commitment()] = term
	t.enqueue(message{Began: &term})
}

// Over tells of a term that is over.
func (t *Teller) Over(c record.Commitment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.terms, c)
	t.enqueue(message{Over: &c})
}

// enqueue has a message written, if there is a witness. The caller holds mu.
func (t *Teller) enqueue(m message) {
	if t.link == nil {
		return // the next one is told of all terms
	}
	t.queue, t.busy = append(t.queue, m), true
	wakeup.Send(t.wake)
}

// Flush waits until everything that was told is with the witness, which then knows it whatever happens to this process. If ctx ends before, or if
// there is no witness, Flush sees to it that no witness knows anything older.
func (t *Teller) Flush(ctx context.Context) {
	for {
		t.mu.Lock()
		link, done, told := t.link, !t.busy, t.told.Wait()
		t.mu.Unlock()
		if link == nil || done {
			return
		}
		select {
		case <-told:
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
		t.enqueue(message{Over: &c})
	}
	clear(t.terms)
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
	for warned := false; ; {
		if link != nil {
			warned = false
			t.serve(link)
			if t.ctx.Err() == nil {
				t.log.Warn("Witness ended, looking for another: until then a leader that dies is replaced when its lease is over")
			}
		}
		if timeutil.Pause(t.ctx, reopenDelay) != nil || t.open == nil {
			return
		}
		var err error
		if link, err = t.open(t.ctx); err != nil {
			link = nil
			if !warned {
				t.log.Warn("There is no witness: a leader that dies is replaced when its lease is over", "error", err)
			}
			warned = true
		}
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
		_, _ = io.Copy(io.Discard, link) // a witness says nothing
	}()
	defer func() { <-gone }()
	defer cancel()
	t.begin(link)
	defer t.finish()
	for {
		for queue := t.take(); len(queue) > 0; queue = t.take() {
			if write(link, queue) != nil {
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
func write(link Link, queue []message) error {
	out := json.NewEncoder(link)
	for i := range queue {
		if err := out.Encode(&queue[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin has a new witness told of all terms.
func (t *Teller) begin(link Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.queue = link, nil
	for _, term := range t.terms {
		t.queue = append(t.queue, message{Began: &term})
	}
	t.busy = len(t.queue) > 0
}

// finish forgets a witness.
func (t *Teller) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.queue, t.busy = nil, nil, false
	t.told.Broadcast()
}

// take returns what is to be written. If that is nothing, everything is with the witness.
func (t *Teller) take() (queue []message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue, t.queue = t.queue, nil
	if len(queue) == 0 {
		t.busy = false
		t.told.Broadcast()
	}
	return queue
}
