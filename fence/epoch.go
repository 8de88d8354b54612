package fence

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election"
)

// epoch is one term's hold on a stream: a record under a subject of its own. Every write demands that the record still is the last message
// under that subject. All handles that this process opens for the term on the stream share the epoch, whatever connection they use.
//
// Only [handle.begin] begins the epoch, and begins it again should the record be dropped. The epoch is over for good once closed is set.
type epoch struct {
	subject string // under which the record is stored
	term    election.Term

	demand atomic.Pointer[demand] // what writes demand, once the epoch has begun
	closed atomic.Pointer[error]  // why the epoch is over; nil while it is not

	queue   atomic.Bool // writes go one at a time
	writing lock
	begins  lock // held by the handle that writes the record

	// Where a write depends on what was read before it, a write that was given up must not be stored after the next one. So while any such
	// write is unresolved, the record is written again first, which shuts those writes out.
	careful    atomic.Bool
	unresolved atomic.Int64 // how many writes were given up since the record was last written
}

// epochID is what the handles of one epoch have in common.
type epochID struct {
	stream  string
	created int64 // by which streams of one name differ, as those of two accounts
	subject string
	key     string // of the election
	token   string
}

// epochs are the epochs for which this process may open another handle.
var epochs struct {
	sync.Mutex
	by map[epochID]*epoch
}

// epochOf returns the epoch of a term in a stream.
func epochOf(on target, subject string, t election.Term) *epoch {
	id := epochID{on.stream, on.created.UnixNano(), subject, t.Key, t.Token()}
	epochs.Lock()
	defer epochs.Unlock()
	maps.DeleteFunc(epochs.by, func(_ epochID, e *epoch) bool { return !e.term.Valid() }) // no handle opens for such a term
	e := epochs.by[id]
	if e == nil {
		e = &epoch{subject: subject, term: t, writing: make(lock, 1), begins: make(lock, 1)}
		if epochs.by == nil {
			epochs.by = map[epochID]*epoch{}
		}
		epochs.by[id] = e
	}
	return e
}

// beCareful has all writes of the epoch take turns from now on. If handles are open already, their writes that are under way have no turn:
// the first write from now on shuts them out.
func (e *epoch) beCareful(open bool) {
	if e.careful.Load() {
		return
	}
	e.queue.Store(true)
	e.careful.Store(true)
	if open {
		e.unresolved.Add(1) // after careful: a write without a turn may load the demand until then
	}
}

// handle is an epoch as one call of [OpenStream] or [OpenBucket] opened it.
type handle struct {
	*epoch
	target
	address string // to which the record is published; it differs from its subject where the bucket is in another domain
	writes  writes
}

// lock is held by one goroutine at a time. Unlike a mutex it may be held while a reply is awaited, because waiters may give up.
type lock chan struct{}

func (l lock) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) release() { <-l }

// openEpoch begins the epoch of a term that leads, unless another handle has begun it, and checks that the stream keeps the record. A
// careful handle depends on what it read before it writes.
func openEpoch(ctx context.Context, on target, subject, address string, t election.Term, careful bool, o options) (*handle, error) {
	counters, err := newWrites(o, t, on.stream)
	if err != nil {
		return nil, err
	}
	h := &handle{epochOf(on, subject, t), on, address, counters}
	if err := h.begins.acquire(ctx); err != nil {
		return nil, err
	}
	defer h.begins.release()
	if err := h.check(); err != nil {
		return nil, err
	}
	open := h.demand.Load() != nil
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	switch rec, _, err := h.last(ctx); {
	case err != nil:
		return nil, err
	case rec == nil:
		return nil, fmt.Errorf("stream %q did not keep the record under %q: its limits, or a consumer of its work queue, dropped it at once", h.stream, h.subject)
	case !t.Valid(): // the record that was found may be a late one, which this term sent when it led
		return nil, over(t)
	}
	if on.config.Replicas > 1 {
		h.queue.Store(true)
	}
	if careful {
		h.beCareful(open)
	}
	return h, nil
}

// begin makes the record the last message under the epoch subject, unless it is that already. A newer term's record closes the epoch.
//
// Only a term that leads writes the record, and it must still lead when the record is acknowledged. Where an older record is stored, the
// demand for its sequence alone would do; where none is stored, the newer one may have been dropped.
func (h *handle) begin(ctx context.Context) error {
	for pause := minPause; ; pause = longer(pause) {
		rec, sequence, err := h.last(ctx)
		switch {
		case err != nil:
			return err
		case rec == nil:
		case rec.Election != h.term.Key:
			return fmt.Errorf("the epochs under %q in stream %q are those of election %q, not of %q: give each election a subject of its own", h.subject, h.stream, rec.Election, h.term.Key)
		case rec.Token == h.term.Token():
			h.demand.Store(h.demandOf(sequence))
			return nil
		case rec.Token > h.term.Token():
			return h.close(fmt.Errorf("%w: term %d of %q has begun an epoch in stream %q after term %d of %q", ErrFenced, rec.Term, rec.Leader, h.stream, h.term.Number, h.term.Name))
		}
		if !h.term.Valid() {
			return h.close(over(h.term))
		}
		begun, err := h.writeRecord(ctx, sequence)
		switch {
		case conflictOf(err) != noConflict:
			if err := wait(ctx, pause, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case !h.term.Valid():
			return h.close(over(h.term))
		}
		h.demand.Store(h.demandOf(begun))
		return h.purgeBefore(ctx, h.subject, begun)
	}
}

// beginAgain begins the epoch again after a write was refused that demanded the given sequence, once for all such writes. It reports
// whether another try makes sense: the record has another sequence now.
func (h *handle) beginAgain(ctx context.Context, refused uint64) (bool, error) {
	if err := h.begins.acquire(ctx); err != nil {
		return false, err
	}
	defer h.begins.release()
	if err := h.check(); err != nil {
		return false, err
	}
	if h.sequence() == refused {
		if err := h.begin(ctx); err != nil {
			return false, err
		}
	}
	return h.sequence() != refused, nil
}

// renew writes the record again while writes are unresolved. It shuts out writes that were given up before the call, and no others.
func (h *handle) renew(ctx context.Context) error {
	if err := h.begins.acquire(ctx); err != nil {
		return err
	}
	defer h.begins.release()
	unresolved := h.unresolved.Load()
	for pause := minPause; unresolved > 0; pause = longer(pause) {
		before := h.sequence()
		renewed, refusal := h.writeRecord(ctx, before)
		switch {
		case refusal == nil:
			h.demand.Store(h.demandOf(renewed))
		case conflictOf(refusal) == noConflict:
			return refusal
		default:
			if err := h.begin(ctx); err != nil { // finds the record
				return err
			}
		}
		if h.sequence() != before {
			h.unresolved.Add(-unresolved)
			return nil
		}
		if err := wait(ctx, pause, refusal); err != nil {
			return err
		}
	}
	return nil
}

// sequence returns the sequence of the record.
func (e *epoch) sequence() uint64 { return e.demand.Load().sequence }

// check returns why the epoch is over, if it is. It closes an epoch whose lease has ended.
func (e *epoch) check() error {
	if why := e.closed.Load(); why != nil {
		return *why
	}
	now, deadline := time.Now(), e.term.Deadline()
	if !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano() { // by the stricter of two clocks, as IsLeader
		return e.close(over(e.term))
	}
	return nil
}

// close ends the epoch for good, and returns the first reason for which it was ended.
func (e *epoch) close(why error) error {
	e.closed.CompareAndSwap(nil, &why)
	return *e.closed.Load()
}

// over is the error of a term that has ended.
func over(t election.Term) error {
	return fmt.Errorf("%w: term %d of %q in election %q is over", ErrFenced, t.Number, t.Name, t.Key)
}
