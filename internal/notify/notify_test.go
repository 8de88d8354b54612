package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// named is a bucket that has no more than a name.
type named struct{ jetstream.KeyValue }

func (named) Bucket() string { return "B" }

// notifier returns a notifier that notifies candidates "me" of the key "k".
func notifier(candidates ...*candidate) *Notifier {
	created := time.Unix(0, 0)
	n := &Notifier{bucket: kv.With(named{}, nil), remake: make(chan struct{}, 1), stalled: make(chan struct{}, 1), listeners: map[string][]*Listener{}}
	n.created.Store(&created)
	n.connected.Store(&time.Time{})
	for _, c := range candidates {
		n.listeners["k"] = append(n.listeners["k"], &Listener{Key: "k", Receiver: c, notifier: n, beginning: record.Beginning("me", "me.1")})
	}
	return n
}

// bucket is what candidates know of their bucket.
var bucket = core.Bucket{Timing: timing.Timing{TTL: 10 * time.Second, Interval: 7500 * time.Millisecond}, Created: time.Unix(0, 0)}

// world is the real one.
var world = core.World{
	Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: lease.Slewed, Started: lease.Read(),
}

// candidate is a candidate "me" of the key "k", with a clock of its own.
type candidate struct {
	*core.Candidate
	now    time.Time
	answer func(now time.Time) core.Result // to each of its requests
}

func (c *candidate) Receive(n core.Notice) { c.Notice(c.now, n) }

func (c *candidate) Closed() {}

// campaigning returns a candidate that has campaigned so many times.
func campaigning(campaigns int, answer func(now time.Time) core.Result) *candidate {
	c := &candidate{core.New(&core.Rules{Name: "me", Instance: "me.1", World: &world}), time.Now(), answer}
	c.Receive(core.Loaded{Bucket: bucket})
	c.Receive(core.Joined{Source: core.Republish, Created: bucket.Created})
	c.Begin(c.now, c.now)
	for range campaigns - 1 {
		c.goOn(c.wait().Due)
	}
	c.wait()
	return c
}

// wait has the candidate do what there is to do now, until it waits.
func (c *candidate) wait() core.Op {
	for {
		op, _ := c.Next(c.now)
		if op.Kind == core.Wait {
			return op
		}
		c.Done(c.now, c.answer(c.now))
	}
}

// goOn ends the wait of the candidate at the given time.
func (c *candidate) goOn(at time.Time) {
	c.now = at
	c.Done(at, core.Result{})
}

// FuzzNotification handles what anybody may publish where the server republishes changes, or as an attempt.
func FuzzNotification(f *testing.F) {
	const subject = "$KV.B.k"
	value := []byte(`{"name":"a","instance":"i","attempt":"i.1"}`)
	f.Add(subject, "1", "2026-01-01T00:00:00Z", "", "", value)
	f.Add(subject, "2", "", "MaxAge", "", []byte{})
	f.Add(subject, "18446744073709551615", "x", "", "DEL", value)
	f.Add("$KV.C.k", "-1", "", "", "", value)
	f.Add(subject, "3", "", "", "", []byte(`{"name":"a","instance":"i","attempt":"i.1","released":"2026-01-01T00:00:00Z","successors":["me"]}`))
	f.Fuzz(func(t *testing.T, subject, sequence, stamp, reason, operation string, data []byte) {
		m := nats.NewMsg("election.B.x." + subject)
		for name, value := range map[string]string{
			"Nats-Subject": subject, "Nats-Sequence": sequence, "Nats-Time-Stamp": stamp, "Nats-Marker-Reason": reason, "KV-Operation": operation,
		} {
			if value != "" {
				m.Header.Set(name, value)
			}
		}
		m.Data = data
		unread := campaigning(core.OpeningCampaigns+1, func(time.Time) core.Result { // nobody holds the key, as far as it knows
			return core.Result{Err: errors.New("no answer"), Failure: core.Otherwise, Outcome: core.Refused}
		})
		follower := campaigning(1, func(now time.Time) core.Result {
			return core.Result{Outcome: core.Refused, State: record.State{Read: now, Revision: 1, Record: record.Parse(value, 1)}}
		})
		leader := campaigning(1, func(now time.Time) core.Result {
			b := bucket
			b.Read = now
			return core.Result{Outcome: core.Applied, Revision: 5, Bucket: b, State: record.State{Read: now, Removal: record.Gone}}
		})
		if leader.Term() == nil {
			t.Fatal("nobody leads")
		}
		candidates := []*candidate{unread, follower, leader}
		n := notifier(candidates...)
		for range 2 {
			n.republished(m, func(key string) string { return "election.B.x.$KV.B." + key })
			n.attempted("k", data)
			for i, c := range candidates {
				if op, waits := c.Waits(); !waits || op.Until.IsZero() || op.Until.After(c.wait().Due) {
					t.Errorf("a notification has candidate %d woken at %v (%v), and its next campaign or renewal was due at %v", i, op.Until, waits, c.wait().Due)
				}
			}
		}
		for _, c := range candidates {
			op, _ := c.Waits()
			at := op.Until
			c.goOn(at)
			c.wait()
		}
	})
}
