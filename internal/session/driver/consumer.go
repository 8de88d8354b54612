package driver

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
)

// consumer delivers what is stored in the bucket, from the first sequence on and in order. While nothing has been told of it yet, its changes are kept.
type consumer struct {
	d       *Driver
	op      uint64    // the request that made it; 0 once that was answered
	created time.Time // when the bucket was created
	needs   uint64    // what that must show
	kept    []session.Change
	sub     *nats.Subscription
	name    string
	next    uint64 // the number of the next delivery
	last    uint64 // the last sequence that was delivered
	silent  *time.Timer
	ended   bool
}

const (
	// heartbeat is the time from one sign of life of a consumer to the next.
	heartbeat = 5 * time.Second
	// makeTimeout is how long a server may take to make or to remove a consumer.
	makeTimeout = 2 * time.Second
)

// follow makes the consumer anew.
func (d *Driver) follow(op *session.Op) {
	if d.consumer != nil {
		d.consumer.stop()
	}
	x := &consumer{d: d, op: op.ID, needs: op.AtLeast, name: record.NewID(), next: 1}
	d.consumer = x
	x.silent = time.AfterFunc(3*heartbeat, x.fails)
	d.consumers.Go(func() { x.make(op.Limit) })
}

// make makes the consumer. Each of its two requests may take as long as a request may.
func (x *consumer) make(limit time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), limit.Add(-limitInterval)) // before the session is told that nothing is known
	defer cancel()
	d := x.d
	sub, err := d.nc.Subscribe(d.nc.NewInbox(), x.received)
	if err != nil {
		x.failsBy(err)
		return
	}
	_ = sub.SetPendingLimits(-1, -1)
	created, err := d.inspect(ctx)
	if err != nil {
		_ = sub.Unsubscribe()
		x.failsBy(err)
		return
	}
	d.Lock()
	x.created = created
	d.extend(time.Now(), x.op)
	d.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), d.session.Timing.RequestTimeout()-limitInterval)
	defer cancel()
	err = kv.UntilRefused(ctx, d.nc, kv.ToFollow(kv.APIPrefix(d.js), d.bucket), func(ctx context.Context) error {
		_, err := d.js.CreatePushConsumer(ctx, kv.StreamName(d.bucket), jetstream.ConsumerConfig{
			Name: x.name, DeliverSubject: sub.Subject, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, FlowControl: true, IdleHeartbeat: heartbeat,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: 5 * time.Minute,
		})
		return err
	})
	d.Lock()
	x.sub = sub
	ended, delivers := x.ended, x.next > 1
	d.Unlock()
	switch {
	case ended:
		x.remove()
	case err != nil && !delivers: // else it was made, and the answer was lost
		x.failsBy(err)
	}
}

// inspect returns when the bucket was created. A bucket from which claims may disappear is not followed: then nobody leads by what it stores.
func (d *Driver) inspect(ctx context.Context) (created time.Time, err error) {
	var stream jetstream.Stream
	err = kv.UntilRefused(ctx, d.nc, kv.ToInspect(kv.APIPrefix(d.js), d.bucket), func(ctx context.Context) (err error) {
		stream, err = d.js.Stream(ctx, kv.StreamName(d.bucket))
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	info := kv.InfoOfStream(d.bucket, stream.CachedInfo())
	err = info.ValidateSessions()
	if ttl := d.session.Timing.TTL; err == nil && info.SessionTTL != ttl {
		err = info.WrongTTL(ttl)
	}
	d.Lock()
	changed := d.unfit == nil
	d.unfit = err
	d.Unlock()
	if changed && err != nil {
		d.log.Warn("Bucket cannot be used", "bucket", d.bucket, "error", err)
	}
	return info.Created, err
}

// stop ends the consumer. The caller holds the mutex.
func (x *consumer) stop() {
	if x.ended {
		return
	}
	x.ended = true
	x.silent.Stop()
	if x.d.consumer == x {
		x.d.consumer = nil
	}
	if x.sub != nil {
		x.d.consumers.Go(x.remove)
	}
}

// remove removes the consumer from the server.
func (x *consumer) remove() {
	_ = x.sub.Unsubscribe()
	ctx, cancel := context.WithTimeout(context.Background(), makeTimeout)
	defer cancel()
	_ = x.d.js.DeleteConsumer(ctx, kv.StreamName(x.d.bucket), x.name) // also if it is not known whether it was made
}

// fails is called when the consumer does not deliver.
func (x *consumer) fails() { x.failsBy(errSilent) }

var errSilent = errors.New("the consumer of the session does not deliver")

// failsBy is called when the consumer cannot be made, and why.
func (x *consumer) failsBy(err error) {
	x.d.Do(func(s *session.Session, now time.Time) {
		if x.ended {
			return
		}
		x.stop()
		if x.op != 0 {
			x.d.done(now, x.op, &session.Result{Outcome: core.Failed, Err: err})
		}
		s.MayHaveMissed(now)
	})
}

// received takes one message: a change, a heartbeat or a question of flow control.
func (x *consumer) received(m *nats.Msg) {
	about, err := m.Metadata()
	if err != nil { // it is no delivery, whose header may say anything
		if m.Header.Get("Status") == "100" {
			if asked := cmp.Or(m.Reply, m.Header.Get("Nats-Consumer-Stalled")); strings.HasPrefix(asked, "$JS.FC.") {
				_ = x.d.nc.Publish(asked, nil)
			}
			x.alive(m.Header.Get("Nats-Last-Consumer"))
		}
		return
	}
	if about.Stream != kv.StreamName(x.d.bucket) || about.Consumer != x.name { // another consumer, of whomever, may deliver to the same subject
		return
	}
	ch := changeOf(x.d.bucket, m, about)
	x.d.Do(func(s *session.Session, now time.Time) {
		switch {
		case x.ended:
			return
		case about.Sequence.Consumer != x.next:
			x.missed(s, now)
			return
		}
		x.next++
		x.last = about.Sequence.Stream
		x.silent.Reset(3 * heartbeat)
		if x.op == 0 {
			s.Seen(now, &ch)
			return
		}
		x.kept = append(x.kept, ch)
		x.d.extend(now, x.op)
		if about.NumPending == 0 && x.last >= x.needs {
			r := session.Result{Outcome: core.Applied, Changes: x.kept, Position: x.last, Created: x.created}
			op := x.op
			x.op, x.kept = 0, nil
			x.d.done(now, op, &r)
		}
	})
}

// alive takes a heartbeat, which says how much was delivered.
func (x *consumer) alive(delivered string) {
	n, err := strconv.ParseUint(delivered, 10, 64)
	x.d.Do(func(s *session.Session, now time.Time) {
		switch {
		case x.ended:
		case err == nil && n+1 != x.next && n >= x.next:
			x.missed(s, now)
		default:
			x.silent.Reset(3 * heartbeat)
		}
	})
}

// missed is called when a delivery did not arrive. The caller holds the mutex.
func (x *consumer) missed(s *session.Session, now time.Time) {
	x.stop()
	if x.op != 0 {
		x.d.done(now, x.op, &session.Result{Outcome: core.Failed, Err: errSilent})
	}
	s.MayHaveMissed(now)
}

// changeOf returns what a message stores. A header that the server may read in another way than the client says nothing of what was replaced.
func changeOf(bucket string, m *nats.Msg, about *nats.MsgMetadata) session.Change {
	ch := session.Change{Key: strings.TrimPrefix(m.Subject, kv.Subject(bucket, "")), Revision: about.Sequence.Stream, Written: about.Timestamp, Record: record.Parse(m.Data, about.Sequence.Stream)}
	expected := m.Header.Values(jetstream.ExpectedLastSubjSeqHeader)
	if ch.Unconditional = len(expected) != 1 || !kv.IsWhole(m); ch.Unconditional {
		return ch
	}
	replaced, err := strconv.ParseUint(expected[0], 10, 64)
	ch.Unconditional = err != nil
	if m.Header.Get(jetstream.ExpectedLastSubjSeqSubjHeader) == "" {
		ch.Replaced = replaced
	}
	return ch
}
