// Package driver makes the requests of a session, see package session, and tells it what came of them and what a consumer of the bucket delivers.
//
// One mutex guards the session with all its claims. Callers change them by [Driver.Do]. Nothing waits for a request: answers come to one subscription, and
// are told in its goroutine.
package driver

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/session"
)

// Driver drives one session.
type Driver struct {
	nc     *nats.Conn
	api    string // the prefix of the API of JetStream
	bucket string
	look   func(c *session.Claim) // called with the mutex held, for each claim whose shell is to look again
	log    *slog.Logger

	answers  *nats.Subscription
	inbox    string
	requests uint64 // that were made

	mu       sync.Mutex
	session  *session.Session
	underWay map[uint64]time.Time // the limits of the requests that are under way
	consumer *consumer            // nil while there is none
	timer    *time.Timer
	closed   bool
}

// New returns a driver. The connection must not keep what it publishes for a server that cannot be reached, or those writes come late.
func New(js jetstream.JetStream, bucket string, rules *session.Rules, look func(c *session.Claim), log *slog.Logger) (*Driver, error) {
	d := &Driver{
		nc: js.Conn(), api: js.Options().APIPrefix, bucket: bucket, look: look, log: log, session: session.New(rules), underWay: map[uint64]time.Time{},
		inbox: js.Conn().NewInbox() + ".",
	}
	if d.api == "" {
		d.api = jetstream.DefaultAPIPrefix
	}
	s, err := d.nc.Subscribe(d.inbox+"*", func(m *nats.Msg) { d.answered(strings.TrimPrefix(m.Subject, d.inbox), m) })
	if err != nil {
		return nil, err
	}
	_ = s.SetPendingLimits(-1, -1)
	d.answers = s
	nothing := func(*session.Session, time.Time) {}
	d.timer = time.AfterFunc(time.Hour, func() { d.Do(nothing) })
	d.Do(nothing)
	return d, nil
}

// Do has something done with the session, and then does what the session decides.
func (d *Driver) Do(do func(s *session.Session, now time.Time)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		do(d.session, time.Now())
		d.goOn()
	}
}

// goOn does what the session decides. The caller holds the mutex.
func (d *Driver) goOn() {
	for {
		now := time.Now()
		d.expire(now)
		ops, until := d.session.Next(now)
		for i := range ops {
			d.make(&ops[i])
		}
		touched := d.session.Touched()
		for _, c := range touched {
			d.look(c)
		}
		for _, e := range d.session.Events() {
			d.log.Log(context.Background(), levels[e.Level], e.Message, e.Attrs...)
		}
		if len(ops) == 0 && len(touched) == 0 {
			d.wake(until)
			return
		}
	}
}

var levels = [...]slog.Level{core.Debug: slog.LevelDebug, core.Info: slog.LevelInfo, core.Warn: slog.LevelWarn}

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
	d.timer.Reset(max(in, 0))
}

// expire ends the requests whose limit has come.
func (d *Driver) expire(now time.Time) {
	for id, limit := range d.underWay {
		if !now.Before(limit) {
			d.done(now, id, &session.Result{Outcome: core.Unknown})
		}
	}
}

// done tells what came of a request, once.
func (d *Driver) done(now time.Time, id uint64, r *session.Result) {
	if _, waits := d.underWay[id]; waits {
		delete(d.underWay, id)
		d.session.Done(now, id, r)
	}
}

// make makes a request.
func (d *Driver) make(op *session.Op) {
	d.requests++
	d.underWay[op.ID] = op.Limit
	switch op.Kind {
	case session.Write:
		d.write(op)
	case session.Follow:
		d.follow(op)
	}
}

// Requests returns how many requests were made.
func (d *Driver) Requests() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// Close ends the driver. What it was asked to write may be stored still.
func (d *Driver) Close() {
	d.mu.Lock()
	d.closed = true
	d.timer.Stop()
	if d.consumer != nil {
		d.consumer.stop()
	}
	d.mu.Unlock()
	_ = d.answers.Unsubscribe()
}
