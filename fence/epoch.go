package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
)

// epoch is one term's hold on a target: a record under a subject of its own. Every write demands that the record still is the last message
// under that subject.
//
// Only [epoch.begin] begins the epoch, and begins it again should the record be dropped. The epoch is over for good once closed is set.
type epoch struct {
	target
	subject string // under which the record is stored
	address string // to which the record is published; it differs where the bucket is in another domain
	term    election.Term
	writes  writes

	demand atomic.Pointer[demand] // what writes demand, once the epoch has begun
	closed atomic.Pointer[error]  // why the epoch is over; nil while it is not

	queue   atomic.Bool // writes go one at a time
	writing lock
	begins  lock

	// Where a write depends on what was read before it, a write that was given up must not be stored after the next one. So while any such
	// write is unresolved, the record is written again first, which shuts those writes out.
	careful    bool
	unresolved atomic.Int64 // how many writes were given up since the record was last written
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

// record is stored under the epoch subject.
type record struct {
	Token    string    `json:"token"`
	Election string    `json:"election"` // the key
	Leader   string    `json:"leader"`   // its name
	Term     uint64    `json:"term"`     // its number, which the token has too
	Since    time.Time `json:"since"`
}

// parseRecord reads a message under an epoch subject, which any client may have written.
func parseRecord(data []byte) (*record, error) {
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	return rec, validateToken(rec.Token)
}

// openEpoch begins the epoch of a term that leads, and checks that the stream keeps the record.
func openEpoch(ctx context.Context, on target, subject, address string, t election.Term, o options) (*epoch, error) {
	counters, err := newWrites(o.registerer, t.Key, t.Name, on.stream)
	if err != nil {
		return nil, err
	}
	e := &epoch{target: on, subject: subject, address: address, term: t, writes: counters, writing: make(lock, 1), begins: make(lock, 1)}
	e.queue.Store(on.config.Replicas > 1)
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	switch rec, _, err := e.last(ctx); {
	case err != nil:
		return nil, err
	case rec == nil:
		return nil, fmt.Errorf("stream %q did not keep the record under %q: its limits, or a consumer of its work queue, dropped it at once", e.stream, e.subject)
	case !t.Valid(): // the record that was found may be a late one, which this term sent when it led
		return nil, over(t)
	}
	return e, nil
}

// begin makes the record the last message under the epoch subject, unless it is that already. A newer term's record closes the epoch.
//
// Only a term that leads writes the record, and it must still lead when the record is acknowledged. Where an older record is stored, the
// demand for its sequence alone would do; where none is stored, the newer one may have been dropped.
func (e *epoch) begin(ctx context.Context) error {
	for pause := minPause; ; pause = longer(pause) {
		rec, sequence, err := e.last(ctx)
		switch {
		case err != nil:
			return err
		case rec == nil:
		case rec.Election != e.term.Key:
			return fmt.Errorf("the epochs under %q in stream %q are those of election %q, not of %q: give each election a subject of its own", e.subject, e.stream, rec.Election, e.term.Key)
		case rec.Token == e.term.Token():
			e.demand.Store(e.demandOf(sequence))
			return nil
		case rec.Token > e.term.Token():
			return e.close(fmt.Errorf("%w: term %d of %q has begun an epoch in stream %q after term %d of %q", ErrFenced, rec.Term, rec.Leader, e.stream, e.term.Number, e.term.Name))
		}
		if !e.term.Valid() {
			return e.close(over(e.term))
		}
		begun, err := e.writeRecord(ctx, sequence)
		switch {
		case conflictOf(err) != noConflict:
			if err := wait(ctx, pause, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		case !e.term.Valid():
			return e.close(over(e.term))
		}
		e.demand.Store(e.demandOf(begun))
		return e.purgeBefore(ctx, e.subject, begun)
	}
}

// beginAgain begins the epoch again after a write was refused that demanded the given sequence, once for all such writes. It reports
// whether another try makes sense: the record has another sequence now.
func (e *epoch) beginAgain(ctx context.Context, refused uint64) (bool, error) {
	if err := e.begins.acquire(ctx); err != nil {
		return false, err
	}
	defer e.begins.release()
	if err := e.check(); err != nil {
		return false, err
	}
	if e.sequence() == refused {
		if err := e.begin(ctx); err != nil {
			return false, err
		}
	}
	return e.sequence() != refused, nil
}

// renew writes the record again while writes are unresolved. It shuts out writes that were given up before the call, and no others.
func (e *epoch) renew(ctx context.Context) error {
	if err := e.begins.acquire(ctx); err != nil {
		return err
	}
	defer e.begins.release()
	unresolved := e.unresolved.Load()
	for pause := minPause; unresolved > 0; pause = longer(pause) {
		before := e.sequence()
		renewed, refusal := e.writeRecord(ctx, before)
		switch {
		case refusal == nil:
			e.demand.Store(e.demandOf(renewed))
		case conflictOf(refusal) == noConflict:
			return refusal
		default:
			if err := e.begin(ctx); err != nil { // finds the record
				return err
			}
		}
		if e.sequence() != before {
			e.unresolved.Add(-unresolved)
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

// writeRecord stores the record if the last message under its subject has the given sequence, and returns its own.
func (e *epoch) writeRecord(ctx context.Context, after uint64) (sequence uint64, err error) {
	data, err := json.Marshal(record{e.term.Token(), e.term.Key, e.term.Name, e.term.Number, e.term.Since})
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: e.address, Data: data, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {e.stream},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(after, 10)},
	}}
	if e.config.AllowMsgTTL { // the stream keeps the record whatever the age of other messages
		m.Header.Set(jetstream.MsgTTLHeader, "never")
	}
	err = persist(ctx, func(ctx context.Context) (err error) {
		sequence, err = e.publish(ctx, m)
		return err
	})
	return sequence, err
}

// last returns the record under the epoch subject and its sequence. The record is nil if there is none; the sequence is then that of its
// deletion marker, or 0.
func (e *epoch) last(ctx context.Context) (*record, uint64, error) {
	m, err := e.lastUnder(ctx, e.subject)
	if err != nil || m.Sequence == 0 || kv.RemovalOf(m.Header) != kv.Kept {
		return nil, m.Sequence, err
	}
	rec, err := parseRecord(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("the message under %q in stream %q, at sequence %d, is no epoch: give a subject that nothing else uses: %w", e.subject, e.stream, m.Sequence, err)
	}
	return rec, m.Sequence, nil
}

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
