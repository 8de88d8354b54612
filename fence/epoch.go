package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// epoch is one term's hold on a stream: a record under a subject of its own, of which every write demands that it still is
// the last there.
//
// It is begun, and begun again should the record be dropped, by [epoch.begin] alone; it is over for good once closed is set.
type epoch struct {
	js      jetstream.JetStream
	api     string // prefix of the subjects of the JetStream API
	stream  string
	subject string // under which the record is stored
	target  string // where to publish it; that differs where the bucket is in another domain
	term    election.Term
	keep    bool // whether the record must be, and can be, kept from expiring
	writes  writes

	demand atomic.Pointer[demand] // what writes demand, once the epoch has begun
	closed atomic.Pointer[error]  // why the epoch is over; nil while it is not

	queue   atomic.Bool // whether writes go one at a time
	writing turn
	begins  turn
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
	shortestPause = time.Millisecond
	longestPause  = 50 * time.Millisecond

	shortestPatience = 250 * time.Millisecond // for an answer, before a request is made again
)

// open begins the epoch of a term that leads, and makes sure that the record stays where it is.
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
		m := e.message(sequence)
		err = persist(ctx, func(ctx context.Context) (err error) {
			sequence, err = e.publish(ctx, m)
			return err
		})
		switch conflict := conflictIn(err); {
		case conflict != none:
			err = wait(ctx, pause, err)
		case err == nil && !e.term.Valid():
			return e.close(over(e.term))
		case err == nil:
			e.demand.Store(e.demandOf(sequence))
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// message returns the record as a message that is stored only if the last under its subject has the given sequence.
func (e *epoch) message(after uint64) *nats.Msg {
	data, err := json.Marshal(record{e.term.Token(), e.term.Key, e.term.Name, e.term.Number, e.term.Since})
	if err != nil {
		panic(err) // cannot be: strings, a number and a time of this age
	}
	m := &nats.Msg{Subject: e.target, Data: data, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {e.stream},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(after, 10)},
	}}
	if e.keep {
		m.Header.Set(jetstream.MsgTTLHeader, "never")
	}
	return m
}

// last returns the record under the epoch subject and its sequence, nil and 0 if there is none.
func (e *epoch) last(ctx context.Context) (*record, uint64, error) {
	m, err := e.lastUnder(ctx, e.subject)
	if m == nil || err != nil {
		return nil, 0, err
	}
	rec, err := readRecord(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("what stands under %q in stream %q, at sequence %d, is no epoch; give a subject of which nothing else makes use: %w", e.subject, e.stream, m.Sequence, err)
	}
	return rec, m.Sequence, nil
}

// lastUnder returns the last message under a subject as the stream's leader has it, nil if there is none. Other replicas,
// which nats.go asks where it may, lag behind.
func (e *epoch) lastUnder(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(struct {
		Subject string `json:"last_by_subj"`
	}{subject})
	if err != nil {
		return nil, err
	}
	var reply *nats.Msg
	err = persist(ctx, func(ctx context.Context) (err error) {
		reply, err = e.js.Conn().RequestWithContext(ctx, e.api+"STREAM.MSG.GET."+e.stream, request)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading %q in stream %q: %w", subject, e.stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return nil, fmt.Errorf("reading %q in stream %q: %w", subject, e.stream, err)
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, fmt.Errorf("reading %q in stream %q: %w", subject, e.stream, answer.Error)
	}
	m := &jetstream.RawStreamMsg{Subject: subject, Sequence: answer.Message.Sequence, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, fmt.Errorf("reading %q in stream %q: %w", subject, e.stream, err)
		}
	}
	return m, nil
}

// persist makes a request that may safely be made twice, again if it is not answered: while a stream has no leader nobody
// answers for it, nor later what came then.
func persist(ctx context.Context, request func(ctx context.Context) error) error {
	for patience := shortestPatience; ; patience *= 2 {
		try, cancel := context.WithTimeout(ctx, patience)
		err := request(try)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
			<-try.Done()
		case !errors.Is(err, context.DeadlineExceeded):
			cancel()
			return err
		}
		cancel()
		if ctx.Err() != nil {
			return err
		}
	}
}

// publish stores one message and returns its sequence.
func (e *epoch) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	ack, err := e.js.PublishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// write has send store something on the demand that it is given, and has it try again while it is
// refused for something that passes. Where what is sent makes a demand of its own, a refusal may also be for that, and is
// then returned as it came.
func (e *epoch) write(ctx context.Context, own bool, send func(ctx context.Context, d *demand) error) error {
	ctx, cancel := limited(ctx, e.js)
	defer cancel()
	err := e.insist(ctx, own, send)
	e.writes.count(err)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (e *epoch) insist(ctx context.Context, own bool, send func(ctx context.Context, d *demand) error) error {
	queued, puzzled := false, false
	for pause := shortestPause; ; pause = longer(pause) {
		if !queued && e.queue.Load() {
			if err := e.writing.take(ctx); err != nil {
				return err
			}
			defer e.writing.give() // at the end of the write: it is in the queue once at most
			queued = true
		}
		if err := e.check(); err != nil {
			return err
		}
		d := e.demand.Load()
		if puzzled {
			d = d.naming(e.stream)
		}
		err := send(ctx, d)
		switch conflictIn(err) {
		case none:
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
			puzzled = true // it demands what is so: of another stream, or of a server that lags behind
		}
		if err := wait(ctx, pause, err); err != nil {
			return err
		}
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
	if !time.Now().Before(e.term.Deadline()) {
		return e.close(over(e.term))
	}
	return nil
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

// passingCodes are those of refusals that another try may not meet: another write on its way on the same subject, and too
// many batches at once.
var passingCodes = []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequenceConstant, 10210, 10211}

func conflictIn(err error) conflict {
	if err == nil {
		return none
	}
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return moved
	case !errors.As(err, &api):
	case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return moved
	case slices.Contains(passingCodes, api.ErrorCode):
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
