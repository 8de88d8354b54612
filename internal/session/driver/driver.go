// Package driver makes the requests of a session, see package internal/session, and tells it what came of them and what a consumer of the bucket delivers.
//
// One mutex guards the session with all its claims. Callers change them by [Driver.Do], or hold the mutex themselves and then call [Driver.GoOn]. Nothing
// waits for a request: answers come to one subscription, and are told in its goroutine.
package driver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/internal/witness"
)

// Driver drives one session.
type Driver struct {
	js     jetstream.JetStream
	nc     *nats.Conn
	bucket string
	shells Shells
	log    *slog.Logger

	answers   *nats.Subscription
	inbox     string
	requests  atomic.Uint64          // that were made
	id        atomic.Pointer[string] // of the session, or of the last one
	took      atomic.Int64           // nanoseconds that the last answer to a write took
	consumers sync.WaitGroup         // that are made or removed

	sync.Mutex // guards what follows; never held across I/O
	session    *session.Session
	underWay   map[uint64]request
	consumer   *consumer          // nil while there is none
	unfit      error              // why the bucket could not be used last; nil if it could
	witnessed  *record.Commitment // of the session of which the witness was told; nil if there is none
	timer      *time.Timer
	due        time.Time    // when the session is to decide again
	looked     time.Time    // when the limits of requests were last looked at
	knows      wakeup.Latch // closed when the session first knows what is stored
	released   wakeup.Latch // closed when the session is released, or has ended without that
	closed     bool
	failures   failures
	events     []core.Event  // that are to be logged
	logging    bool          // a goroutine does
	writes     []*session.Op // that are to be published
	writing    bool          // a goroutine does
}

// request is a request that is under way.
type request struct {
	op          *session.Op
	own         bool // it writes the record of the session
	sent, limit time.Time
}

// Shells is what surrounds the session in its process. The mutex is held for each call, and none waits.
type Shells struct {
	// Look has the shell of a claim look at what its session has decided, and the claim decide again.
	Look func(c *session.Claim, now time.Time)
	// Suspect has the connection examined, because an answer has not come in time; nil to leave that out.
	Suspect func(took time.Duration)
	// Witness is told of the sessions, as of the terms of an election; nil if there is none.
	Witness settings.Witness
}

// New returns a driver, and opens the session.
func New(js jetstream.JetStream, bucket string, rules *session.Rules, shells Shells, log *slog.Logger) (*Driver, error) {
	d := &Driver{
		js: js, nc: js.Conn(), bucket: bucket, shells: shells, log: log, session: session.New(rules), underWay: map[uint64]request{}, inbox: js.Conn().NewInbox() + ".",
		failures: failures{others: map[string]failure{}},
	}
	d.id.Store(new(""))
	s, err := d.nc.Subscribe(d.inbox+"*", func(m *nats.Msg) { d.answered(strings.TrimPrefix(m.Subject, d.inbox), m) })
	if err != nil {
		return nil, err
	}
	_ = s.SetPendingLimits(-1, -1)
	d.answers = s
	d.timer = time.AfterFunc(time.Hour, d.look)
	d.Do(nothing)
	return d, nil
}

func nothing(*session.Session, time.Time) {}

// Do has something done with the session, and then does what the session decides.
func (d *Driver) Do(do func(s *session.Session, now time.Time)) {
	d.Lock()
	defer d.Unlock()
	if !d.closed {
		do(d.session, time.Now())
		d.GoOn()
	}
}

// GoOn does what the session decides. The caller holds the mutex.
func (d *Driver) GoOn() {
	if d.closed {
		return
	}
	for {
		now := time.Now()
		d.expire(now)
		ops, until := d.session.Next(now)
		for i := range ops {
			d.make(&ops[i])
		}
		touched := d.session.Touched()
		for _, c := range touched {
			d.shells.Look(c, now)
		}
		shown := d.session.Show(time.Now())
		if d.events = append(d.events, d.session.Events()...); len(d.events) > 0 && !d.logging {
			d.logging = true
			go d.logEvents()
		}
		if shown && len(ops) == 0 && len(touched) == 0 {
			d.tell()
			d.wake(until)
			return
		}
	}
}

// logEvents writes what there is to log. The handler of the log is the user's, so the mutex is not held meanwhile.
func (d *Driver) logEvents() {
	for {
		d.Lock()
		events := d.events
		if d.events = nil; len(events) == 0 {
			d.logging = false
			d.Unlock()
			return
		}
		d.Unlock()
		for _, e := range events {
			d.log.Log(context.Background(), levels[e.Level], e.Message, e.Attrs...)
		}
	}
}

var levels = [...]slog.Level{core.Debug: slog.LevelDebug, core.Info: slog.LevelInfo, core.Warn: slog.LevelWarn}

// tell tells those who wait what the session has come to.
func (d *Driver) tell() {
	if id := d.session.ID(); id != "" && id != d.ID() {
		d.id.Store(&id)
	}
	d.tellWitness()
	if d.session.Knows() {
		d.knows.Close()
	}
	if d.session.Step() == session.Released {
		d.released.Close()
	}
}

// tellWitness gives the witness, if there is one, what it needs to release the session that is open, should this process die.
func (d *Driver) tellWitness() {
	if d.shells.Witness == nil {
		return
	}
	var present *record.Commitment
	if d.session.ID() != "" && d.session.Step() != session.Released {
		present = new(d.session.Secret().Commitment())
	}
	before := d.witnessed
	if d.witnessed = present; before != nil && (present == nil || *present != *before) {
		d.shells.Witness.Over(*before)
	}
	if present != nil && (before == nil || *present != *before) {
		id := d.session.ID()
		d.shells.Witness.Began(witness.Term{
			API: kv.APIPrefix(d.js), Bucket: d.bucket, Key: session.SessionKey(id), Name: d.session.Name, Instance: id, Secret: d.session.Secret(),
			LeaseMs: record.Milliseconds(d.session.Timing.TTL),
		})
	}
}

// Session returns the session. The caller holds the mutex.
func (d *Driver) Session() *session.Session { return d.session }

// ID returns the id of the session, or of the last one if none is open.
func (d *Driver) ID() string { return *d.id.Load() }

// AwaitKnown waits until the session knows what is stored in the bucket.
func (d *Driver) AwaitKnown(ctx context.Context) error { return d.await(ctx, &d.knows) }

// AwaitReleased waits until the session is released, or has ended without that.
func (d *Driver) AwaitReleased(ctx context.Context) error { return d.await(ctx, &d.released) }

func (d *Driver) await(ctx context.Context, latch *wakeup.Latch) error {
	d.Lock()
	wait := latch.Wait()
	d.Unlock()
	return wakeup.Wait(ctx, wait)
}

// Unfit says why the bucket could not be used last; nil if it could.
func (d *Driver) Unfit() error {
	d.Lock()
	defer d.Unlock()
	return d.unfit
}

// limitInterval is how exactly the limits of requests are kept.
const limitInterval = 20 * time.Millisecond

// wake has the session asked again at a time, and sooner if requests are under way, which have limits.
func (d *Driver) wake(at time.Time) {
	in := time.Hour
	if !at.IsZero() {
		in = time.Until(at)
	}
	if len(d.underWay) > 0 {
		in = min(in, limitInterval)
	}
	d.due = time.Now().Add(in)
	d.timer.Reset(lease.Sleep(max(in, 0)))
}

// look goes on if that is due, or if the lease is over although its timer had not run for so long.
func (d *Driver) look() {
	d.Lock()
	defer d.Unlock()
	now := time.Now()
	if left := d.due.Sub(now); !d.closed && left > 0 && d.session.Left(now) > 0 {
		d.timer.Reset(lease.Sleep(left))
		return
	}
	d.GoOn()
}

// expire ends the requests whose limit has come.
func (d *Driver) expire(now time.Time) {
	if now.Sub(d.looked) < limitInterval {
		return
	}
	d.looked = now
	for id, r := range d.underWay {
		if now.Before(r.limit) {
			continue
		}
		err := fmt.Errorf("no answer to a write to %s: %w", kv.Subject(d.bucket, r.op.Key), context.DeadlineExceeded)
		if r.op.Kind == session.Follow {
			err = fmt.Errorf("not everything was delivered: %w", context.DeadlineExceeded)
		}
		if d.done(now, id, &session.Result{Outcome: core.Unknown, Err: err}); d.shells.Suspect != nil {
			d.shells.Suspect(time.Duration(d.took.Load()))
		}
	}
}

// extend extends the limit of a request that goes on: there may be more to read than a request may take.
func (d *Driver) extend(now time.Time, id uint64) {
	if q, waits := d.underWay[id]; waits {
		q.limit = timeutil.Later(q.limit, now.Add(d.session.Timing.RequestTimeout()))
		d.underWay[id] = q
	}
}

// done tells what came of a request, once.
func (d *Driver) done(now time.Time, id uint64, r *session.Result) {
	q, waits := d.underWay[id]
	if !waits {
		return
	}
	delete(d.underWay, id)
	switch r.Outcome {
	case core.Applied, core.Refused:
		d.note(q, failure{})
		if q.op.Kind == session.Write {
			d.took.Store(int64(now.Sub(q.sent)))
		}
	default:
		d.note(q, failure{now, cmp.Or(r.Err, errSaysNothing)})
	}
	d.session.Done(now, id, r)
}

// make makes a request.
func (d *Driver) make(op *session.Op) {
	d.requests.Add(1)
	d.underWay[op.ID] = request{op: op, own: op.Key == session.SessionKey(d.session.ID()), sent: time.Now(), limit: op.Limit}
	switch op.Kind {
	case session.Write:
		d.write(op)
	case session.Follow:
		d.follow(op)
	}
}

// Requests returns how many requests were made.
func (d *Driver) Requests() uint64 { return d.requests.Load() }

// Close ends the driver. What it was asked to write may be stored still. It waits until the consumer is removed, for as long as that may take.
func (d *Driver) Close() {
	d.Lock()
	d.closed = true
	d.timer.Stop()
	if d.witnessed != nil {
		d.shells.Witness.Over(*d.witnessed)
		d.witnessed = nil
	}
	if d.consumer != nil {
		d.consumer.stop()
	}
	d.Unlock()
	_ = d.answers.Unsubscribe()
	removed := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), makeTimeout)
	defer cancel()
	go func() {
		d.consumers.Wait()
		close(removed)
	}()
	_ = wakeup.Wait(ctx, removed)
}
