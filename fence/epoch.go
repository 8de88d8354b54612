package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// epoch is one term's hold on a target: a record under a subject of its own, of which every write demands that it still is
// the last there.
//
// It is begun, and begun again should the record be dropped, by [epoch.begin] alone; it is over for good once closed is set.
type epoch struct {
	target
	subject string // under which the record is stored
	address string // where to publish it; that differs where the bucket is in another domain
	term    election.Term
	writes  writes

	demand atomic.Pointer[demand] // what writes demand, once the epoch has begun
	closed atomic.Pointer[error]  // why the epoch is over; nil while it is not

	queue   atomic.Bool // whether writes go one at a time
	writing turn
	begins  turn

	// Where a write depends on what was read before it, one that was given up must not come after the next: while any is adrift
	// the record is written anew first, which shuts the late ones out.
	careful bool
	adrift  atomic.Int64 // how many were given up since that was last begun
}

// turn is held by one goroutine at a time. Unlike a mutex it may be held while a reply is awaited, for who waits for it may
// give up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

// record is what stands under the epoch subject.
type record struct {
	Token    string    `json:"token"`
	Election string    `json:"election"` // the key
	Leader   string    `json:"leader"`   // its name
	Term     uint64    `json:"term"`     // its number, which the token holds too
	Since    time.Time `json:"since"`
}

// readRecord reads what somebody left under an epoch subject.
func readRecord(data []byte) (*record, error) {
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	return rec, checkToken(rec.Token)
}

const (
	shortestPause = time.Millisecond // before a write that was refused is tried again
	longestPause  = 50 * time.Millisecond

	longestTurn = time.Second // for which one write keeps others waiting
)

// openEpoch begins the epoch of a term that leads.
func openEpoch(ctx context.Context, on target, subject, address string, t election.Term, o options) (*epoch, error) {
	counters, err := newWrites(o.registerer, t.Key, t.Name, on.stream)
	if err != nil {
		return nil, err
	}
	e := &epoch{target: on, subject: subject, address: address, term: t, writes: counters, writing: newTurn(), begins: newTurn()}
	e.queue.Store(on.config.Replicas > 1)
	return e, e.open(ctx)
}

// open begins the epoch, and makes sure that the record stays where it is.
func (e *epoch) open(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	switch rec, _, err := e.last(ctx); {
	case err != nil:
		return err
	case rec == nil:
		return fmt.Errorf("stream %q did not keep the record under %q; its limits, or a consumer of its work, dropped it at once", e.stream, e.subject)
	case !e.term.Valid(): // what was found may be what this term sent when it led, and had come late
		return over(e.term)
	}
	return nil
}

// begin makes the record the last under the epoch subject, unless it is so already, or a newer term's is there: that closes
// the epoch.
//
// Only a term that leads writes it, and it must still lead once the record is acknowledged. Where an older record stands,
// the demand for its sequence alone would do; where none does, the newer one may have been dropped.
func (e *epoch) begin(ctx context.Context) error {
	for pause := shortestPause; ; pause = longer(pause) {
		rec, sequence, err := e.last(ctx)
		switch {
		case err != nil:
			return err
		case rec == nil:
		case rec.Election != e.term.Key:
			return fmt.Errorf("the epochs under %q in stream %q are those of election %q, not of %q; give each election one of its own", e.subject, e.stream, rec.Election, e.term.Key)
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
		case conflictIn(err) != none:
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
		return e.dropBefore(ctx, e.subject, begun)
	}
}

// renew writes the record anew if writes were given up that may still come, and must not. It shuts out those that were given up
// before it is sent, and no others.
func (e *epoch) renew(ctx context.Context) error {
	if err := e.begins.take(ctx); err != nil {
		return err
	}
	defer e.begins.give()
	adrift := e.adrift.Load()
	for pause := shortestPause; adrift > 0; pause = longer(pause) {
		before := e.demand.Load().sequence
		renewed, refusal := e.writeRecord(ctx, before)
		switch {
		case refusal == nil:
			e.demand.Store(e.demandOf(renewed))
		case conflictIn(refusal) == none:
			return refusal
		default:
			if err := e.begin(ctx); err != nil { // finds it
				return err
			}
		}
		if e.demand.Load().sequence != before {
			e.adrift.Add(-adrift)
			return nil
		}
		if err := wait(ctx, pause, refusal); err != nil {
			return err
		}
	}
	return nil
}

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
	if e.config.AllowMsgTTL { // it is kept whatever the age of others
		m.Header.Set(jetstream.MsgTTLHeader, "never")
	}
	err = persist(ctx, func(ctx context.Context) error {
		ack, err := e.publish(ctx, m)
		if err == nil {
			sequence = ack.Sequence
		}
		return err
	})
	return sequence, err
}

// last returns the record under the epoch subject and its sequence. The record is nil if there is none; the sequence is then
// that of what marks its deletion, or 0.
func (e *epoch) last(ctx context.Context) (*record, uint64, error) {
	m, err := e.lastUnder(ctx, e.subject)
	switch {
	case err != nil:
		return nil, 0, err
	case m == nil:
		return nil, 0, nil
	case operationOf(m.Header) != jetstream.KeyValuePut:
		return nil, m.Sequence, nil
	}
	rec, err := readRecord(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("what stands under %q in stream %q, at sequence %d, is no epoch; give a subject of which nothing else makes use: %w", e.subject, e.stream, m.Sequence, err)
	}
	return rec, m.Sequence, nil
}

// attempt is one try of a write, on the demand that it is given.
type attempt func(ctx context.Context, d *demand) error

// write has a write tried until it is stored, or refused for good. Where what is sent makes a demand of its own, a refusal may
// be for that, and is then returned as it came. A write that names the stream is refused by others.
func (e *epoch) write(ctx context.Context, own, naming bool, try attempt) error {
	ctx, cancel := limited(ctx, e.js)
	defer cancel()
	err := e.insist(ctx, own, naming, try)
	e.writes.count(err)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (e *epoch) insist(ctx context.Context, own, naming bool, try attempt) error {
	var p *place
	defer func() { p.leave() }()
	for pause := shortestPause; ; pause = longer(pause) {
		if e.queue.Load() && !p.held() {
			var err error
			if p, err = e.enter(ctx); err != nil {
				return err
			}
		}
		if err := e.check(); err != nil {
			return err
		}
		d := e.demand.Load()
		if e.adrift.Load() > 0 {
			if err := e.renew(ctx); err != nil {
				return err
			}
			continue
		}
		if e.careful && !p.send() {
			continue
		}
		if naming {
			d = d.naming(e.stream)
		}
		err := try(ctx, d)
		switch conflictIn(err) {
		case none:
			if e.careful && err != nil {
				e.adrift.Add(1)
			}
			return err
		case passing:
			e.queue.Store(true)
		case moved:
			begun, beginErr := e.beginAgain(ctx, d.sequence)
			switch {
			case beginErr != nil:
				return beginErr
			case begun:
				continue
			case own:
				return err
			}
			naming = true // what is demanded is so: this was another stream, or a server that lags behind
		}
		if err := wait(ctx, pause, err); err != nil {
			return err
		}
	}
}

// place is a write's place at the head of the queue. It ends by itself when the write takes long: on a replicated stream it
// only spares others a refusal, and in a careful epoch the write is adrift then.
type place struct {
	give  func() // once
	ended atomic.Bool
	sends atomic.Bool // whether the write has gone on to be tried
	timer *time.Timer
}

// enter waits for a write's turn.
func (e *epoch) enter(ctx context.Context) (*place, error) {
	if err := e.writing.take(ctx); err != nil {
		return nil, fmt.Errorf("%w while it waited for the writes before it", err)
	}
	p := &place{give: sync.OnceFunc(e.writing.give)}
	p.timer = time.AfterFunc(longestTurn, func() {
		p.ended.Store(true) // first: it is adrift with what it demanded before, and demands nothing more
		if e.careful && p.sends.Load() {
			e.adrift.Add(1)
		}
		p.give()
	})
	return p, nil
}

func (p *place) held() bool { return p != nil && !p.ended.Load() }

// send says whether a write may be tried on the demand that it has read: not once another has its place, who may make the same.
func (p *place) send() bool {
	p.sends.Store(true)
	return p.held()
}

func (p *place) leave() {
	if p != nil {
		p.timer.Stop()
		p.give()
	}
}

// beginAgain begins the epoch again after a write was refused that demanded the given sequence, once for all writes that were. It
// says whether another try makes sense: the record has another sequence now.
func (e *epoch) beginAgain(ctx context.Context, refused uint64) (bool, error) {
	if err := e.begins.take(ctx); err != nil {
		return false, err
	}
	defer e.begins.give()
	if err := e.check(); err != nil {
		return false, err
	}
	if e.demand.Load().sequence == refused {
		if err := e.begin(ctx); err != nil {
			return false, err
		}
	}
	return e.demand.Load().sequence != refused, nil
}

// check says why the epoch is over, if it is. It closes an epoch whose lease has ended.
func (e *epoch) check() error {
	if why := e.closed.Load(); why != nil {
		return *why
	}
	if ended(e.term.Deadline()) {
		return e.close(over(e.term))
	}
	return nil
}

// ended says whether a deadline that a term gave just now has passed, by either clock: IsLeader goes by the stricter one too.
func ended(deadline time.Time) bool {
	now := time.Now()
	return !now.Before(deadline) || now.UnixNano() >= deadline.UnixNano()
}

// close ends the epoch for good, and returns why it was ended first.
func (e *epoch) close(why error) error {
	e.closed.CompareAndSwap(nil, &why)
	return *e.closed.Load()
}

// over is the error of a term that leads no more.
func over(t election.Term) error {
	return fmt.Errorf("%w: term %d of %q in election %q is over", ErrFenced, t.Number, t.Name, t.Key)
}

// conflict is why the server refused a write.
type conflict int

const (
	none    conflict = iota
	passing          // something else that makes or concerns the same demand is under way
	moved            // what was demanded does not hold
)

// conflictIn is the only place that knows which refusals another try may not meet.
func conflictIn(err error) conflict {
	const atomicPublishTooManyInflight, batchPublishTooManyInflight jetstream.ErrorCode = 10210, 10211
	if err == nil {
		return none
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return moved
	}
	switch codeOf(err) {
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return moved
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant, atomicPublishTooManyInflight, batchPublishTooManyInflight:
		return passing
	}
	return none
}

// wait pauses before another try of what was refused, and gives up with both reasons when ctx ends.
func wait(ctx context.Context, pause time.Duration, refusal error) error {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w; the last try was refused: %w", ctx.Err(), refusal)
	}
}

func longer(pause time.Duration) time.Duration { return min(2*pause, longestPause) }
