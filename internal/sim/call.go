package sim

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
	"github.com/natscampaign/election/internal/timeutil"
)

// op is a method of the bucket that the library calls.
type op int

const (
	opCreate op = iota
	opUpdate
	opDelete
	opGet
	opStatus
	opWatch
	numOps
)

var opNames = [numOps]string{"create", "update", "delete", "get", "status", "watch"}

// writes reports whether a call changes the key.
func (o op) writes() bool { return o <= opDelete }

const (
	clientTimeout = 5 * time.Second // of nats.go, where the caller sets no limit
	burstLimit    = 20              // how many calls a candidate may make in one instant: a call that fails at once must not be repeated at once
)

// call sends one request to the server and waits for the reply; faults may spoil either way. serve carries the request out.
// It runs at most once, under the world's mutex; for a write maybe after call has returned. q is nil for requests that
// write nothing.
func (v *view) call(ctx context.Context, o op, q *judge.Write, serve func(now time.Time, f fate) error) error {
	if _, limited := ctx.Deadline(); !limited {
		limit, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		ctx = limit
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.conn, cancel)()
	f, err := v.begin(o, q)
	if v.burst >= burstLimit { // otherwise virtual time would stop
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		v.end(o, q, err)
		return err
	}
	err = v.travel(ctx, o, q, f, serve)
	v.awaitThaw()
	switch { // a reply and the end of ctx may both be ready after the thaw: nats.go may see either first
	case v.conn.Err() != nil && (err != nil || f.coin):
		err = nats.ErrConnectionClosed
	case ctx.Err() != nil && f.coin && !f.hangs:
		err = ctx.Err()
	}
	v.end(o, q, err)
	return err
}

// travel takes the request to the server and the reply back.
func (v *view) travel(ctx context.Context, o op, q *judge.Write, f fate, serve func(time.Time, fate) error) error {
	v.awaitThaw()
	if err := v.awaitLink(ctx, o, q, f, serve); err != nil {
		return err
	}
	if f.err != nil {
		timeutil.Sleep(ctx, f.replyDelay)
		if ctx.Err() != nil && f.replyDelay > 0 {
			return ctx.Err()
		}
		return f.err
	}
	if f.requestLost {
		<-ctx.Done()
		return ctx.Err()
	}
	arrival := time.Now().Add(v.w.script.latency + f.requestDelay)
	if !timeutil.Sleep(ctx, time.Until(arrival)) {
		if o.writes() {
			v.arriveLate(arrival, q, f, serve)
		}
		return ctx.Err()
	}
	err := v.arrive(q, f, false, serve)
	if f.hangs && err != nil { // nats.go reads the key to see whether it was removed, and then returns the refusal
		<-ctx.Done()
		return err
	}
	if f.replyLost || !timeutil.Sleep(ctx, v.w.script.latency+f.replyDelay) || v.isCut() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// awaitLink waits until the link is up. While it is down, a call fails at once, or waits in the client's buffer and is sent
// when the link is back, even if its caller has given up.
func (v *view) awaitLink(ctx context.Context, o op, q *judge.Write, f fate, serve func(time.Time, fate) error) error {
	v.w.mu.Lock()
	until, buffered := v.c.slot.cutUntil, v.c.slot.buffered
	v.w.mu.Unlock()
	switch left := time.Until(until); {
	case left <= 0:
		return nil
	case !buffered:
		return nats.ErrReconnectBufExceeded
	case timeutil.Sleep(ctx, left):
		return nil
	}
	if o.writes() {
		v.arriveLate(until.Add(v.w.script.latency), q, f, serve)
	}
	return ctx.Err()
}

// arrive has the server carry out the request.
func (v *view) arrive(q *judge.Write, f fate, late bool, serve func(time.Time, fate) error) error {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.checkSoon()
	now := time.Now()
	if q != nil && late {
		v.w.count("write applied or refused late")
		return v.apply(now, q, f, true)
	}
	return serve(now, f)
}

// arriveLate has a write arrive after its sender gave up, but no later than the end of the trouble.
func (v *view) arriveLate(arrival time.Time, q *judge.Write, f fate, serve func(time.Time, fate) error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if end := v.w.troubleEnds; arrival.After(end) {
		arrival = end
	}
	time.AfterFunc(max(time.Until(arrival), 0), func() { _ = v.arrive(q, f, true, serve) })
}

// awaitThaw waits while the process is frozen.
func (v *view) awaitThaw() {
	for {
		v.w.mu.Lock()
		left := time.Until(v.c.slot.frozenUntil)
		v.w.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

func (v *view) isCut() bool {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return time.Now().Before(v.c.slot.cutUntil)
}

// begin records a call and decides its fate.
func (v *view) begin(o op, q *judge.Write) (fate, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	now, l := time.Now(), v.c.ledger
	if v.burst++; !now.Equal(v.last) {
		v.last, v.burst = now, 0
	}
	if v.burst == burstLimit {
		v.w.judge.Fail(now, "P9", v.c.name, "makes %d calls in one instant", v.burst)
	}
	if v.c.crashed || v.c.closed {
		return fate{}, nats.ErrConnectionClosed
	}
	v.calls[o]++
	f := v.w.fate(v.c, o, v.calls[o])
	if q != nil {
		q.Sent, q.CannotRead = now, f.cannotRead
		v.w.journal.Add(judge.Event{At: now, Name: v.c.name, What: q.Verb() + " sent, over" + judge.OrNothing(q.Expect), A: q.Expect})
		v.w.judge.WriteSent(q, now)
	}
	switch {
	case q != nil:
		v.w.trace.Sent(q)
	case o == opGet:
		v.w.trace.Asked(l)
	case o == opStatus:
		v.w.trace.Note(l, replay.AsksInfo)
		v.w.judge.StatusRequested(l, now)
	}
	if f != (fate{coin: f.coin}) || now.Before(v.w.server.inFlight) {
		l.Troubled(now)
	}
	return f, nil
}

// end records the outcome of a call.
func (v *view) end(o op, q *judge.Write, err error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	now := time.Now()
	e := judge.Event{At: now, Name: v.c.name, What: opNames[o] + " returned"}
	if err != nil {
		e.Note = err.Error()
	}
	if err != nil || o != opGet { // Get records what it read
		v.w.journal.Add(e)
	}
	last, named := namedSequence(err)
	if q != nil {
		v.w.trace.Returned(q, err, last, named)
	}
	switch {
	case q == nil:
	case err == nil:
		q.Acknowledged = now
		v.w.judge.WriteKnown(q, now)
	case v.c.closed && errors.Is(err, nats.ErrConnectionClosed):
		v.c.ledger.SawDisconnection(now)
	case named:
		v.w.judge.WriteRefused(q, last, now)
	}
	v.w.checkSoon()
}
