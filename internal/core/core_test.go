package core

import (
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// world is the real one, but for its clocks, which are not slewed.
var world = World{
	Random: timeutil.Random, NewID: record.NewID, NewSecret: record.NewSecret, Clocks: lease.Read, Boot: lease.SinceBoot, Slewed: notSlewed, Started: lease.Read(),
}

func notSlewed() (time.Duration, bool) { return 0, true }

// candidate returns the candidate "me" of the key "k", in a bucket with a TTL of 10 s.
func candidate() *Candidate {
	c := New(&Rules{Name: "me", Instance: "me.1", World: &world})
	c.bucket = Bucket{Timing: timing.Timing{TTL: 10 * time.Second, Interval: 7500 * time.Millisecond}, Created: time.Unix(0, 0)}
	c.hints.source, c.hints.bucketCreated = NoSource, c.bucket.Created
	return c
}

// waits has a candidate wait. Its next campaign is far away.
func waits(c *Candidate) {
	now := time.Now()
	c.role, c.waiting.step, c.waiting.due = &c.waiting, WaitingCampaign, now.Add(time.Hour)
	c.Next(now)
}

// woken reports whether a candidate that waits is to be woken now.
func woken(c *Candidate) bool {
	now := time.Now()
	c.waitAnew(now)
	op, waits := c.Waits()
	at := op.Until
	return waits && !at.IsZero() && !now.Before(at)
}

// reads is the role of a candidate that reads the key, and then waits.
type reads struct{}

func (reads) at() Step { return BiddingRead }

func (reads) next(c *Candidate, now time.Time) Op {
	return c.readOp(now, now.Add(c.bucket.RequestTimeout()), Always)
}

func (reads) done(c *Candidate, now time.Time, r Result) role {
	c.finishRead(now, &r.State, r.Err, false)
	return &c.waiting
}

// beginRead has a candidate read the key. [Candidate.Done] takes the answer.
func beginRead(c *Candidate) {
	c.role = reads{}
	c.beginStep(time.Now())
}

// read has a candidate read a record.
func read(c *Candidate, revision uint64, r record.Record) {
	beginRead(c)
	c.Done(time.Now(), Result{State: record.State{Read: time.Now(), Revision: revision, Record: r}})
}

// learn has a candidate know of a record as if it had read it.
func learn(c *Candidate, revision uint64, r record.Record) {
	c.learn(time.Now(), &record.State{Read: time.Now(), Revision: revision, Record: r})
}

// notify notifies a candidate of a record.
func notify(c *Candidate, revision uint64, r record.Record) {
	c.notified(time.Now(), &Notification{Revision: revision, Value: &Value{Bytes: r.Encode(), Revision: revision}})
}

// delay returns how long after it became known a candidate bids for a vacancy after the known holder.
func delay(c *Candidate) time.Duration {
	holder := c.key.holder.record()
	return c.bidDelay(&holder)
}

// attempt is an attempt of the candidate of a name.
func attempt(name string) record.Record {
	return record.Record{Name: name, Instance: name, Attempt: name + ".1", Notified: true}
}

// attempted has a candidate see an attempt of another one.
func attempted(c *Candidate, r record.Record) { c.attempted(time.Now(), &r) }

// ids returns the ids of candidates in a queue.
func ids(names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, record.QueueID(name))
	}
	return ids
}

// names returns the names of successors.
func names(successors []record.Successor) (names []string) {
	for _, s := range successors {
		names = append(names, s.Name)
	}
	return names
}
