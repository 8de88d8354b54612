package sim

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// server is the bucket: one key, the sequence of its stream, and a clock. It is a deterministic state machine.
type server struct {
	w           *world
	ttl         time.Duration // of records
	longest     time.Duration // that the TTL has been
	created     time.Time     // this bucket
	shown       time.Time     // when it was created, by what the server says
	seq         uint64
	current     *judge.Entry
	versions    []version      // for stale reads and rewinds
	written     []*judge.Entry // all that were ever stored
	expires     time.Time      // when the current entry expires unless the clock changes
	expiring    bool           // that expiry is under way: a renewal does not stop it
	expiryTimer *virtual.Timer
	paused      bool // an operator has paused the election

	clockSet time.Time // when offset and rate last changed
	offset   time.Duration
	rate     float64       // less 1
	setBack  time.Duration // by how much the clock was set back at most
	inFlight time.Time     // until when a write waits for a quorum
}

// version is the state of the key from some time on.
type version struct {
	from  time.Time
	entry *judge.Entry
	seq   uint64 // of the stream
}

func newServer(w *world) *server {
	return &server{w: w, ttl: w.script.initial(), longest: w.script.initial(), created: w.Now, shown: w.Now, clockSet: w.Now}
}

// clock returns the time by the server's clock.
func (s *server) clock(now time.Time) time.Time {
	since := now.Sub(s.clockSet)
	return now.Add(s.offset + time.Duration(float64(since)*s.rate))
}

// realTime returns the instant at which the server's clock will show the given time.
func (s *server) realTime(shown time.Time) time.Time {
	left := shown.Sub(s.clockSet.Add(s.offset))
	return s.clockSet.Add(time.Duration(float64(left) / (1 + s.rate)))
}

// setClock steps the clock, or changes its rate. The expiry moves with the clock.
func (s *server) setClock(now time.Time, step time.Duration, rate float64) {
	s.offset = s.clock(now).Sub(now) + step
	s.clockSet, s.rate = now, rate
	s.setBack = max(s.setBack, s.setBack-step)
	s.scheduleExpiry()
}

// lifetime is how long an entry stays under the key. The marker of an expiry has a TTL of its own.
func (s *server) lifetime(e *judge.Entry) time.Duration {
	if e.Expired {
		return s.w.script.markerTTL()
	}
	return s.ttl
}

// setTTL changes the TTL, also of what is stored.
func (s *server) setTTL(ttl time.Duration) {
	s.ttl, s.longest = ttl, max(s.longest, ttl)
	s.w.judge.TTLChanged(ttl)
	s.scheduleExpiry()
}

// scheduleExpiry sets the time at which the current entry expires.
func (s *server) scheduleExpiry() {
	e := s.current
	if e == nil || s.expiring {
		return
	}
	s.expiryTimer.Stop()
	if e.Write != nil && e.Write.Never {
		return
	}
	lateness := time.Duration(virtual.Mix(s.w.script.seed, e.Revision, 7) % uint64(s.w.script.lateness+1))
	s.expires = s.realTime(e.Stamped.Add(s.lifetime(e))).Add(lateness)
	s.expiryTimer = s.w.At(s.expires, s.expire)
}

// expire removes the current entry if its lifetime is over.
func (s *server) expire() {
	e, now := s.current, s.w.Now
	if e == nil || now.Before(s.expires) || e.Write != nil && e.Write.Never {
		return
	}
	s.w.journal.Add(judge.Event{At: now, What: "expired", A: e.Revision})
	if e.Stamped.Add(s.lifetime(e)).Before(s.clock(now).Add(-time.Millisecond)) {
		s.w.count("expiry more than 1 ms late")
	}
	kind := judge.ByExpiry
	if s.expiring {
		kind = judge.ByLateExpiry
		s.w.count(renewalDeleted)
	}
	var marker *judge.Entry
	if s.w.script.markers && !e.Expired {
		marker = &judge.Entry{Op: jetstream.KeyValuePurge, Expired: true}
	}
	s.store(now, marker, kind)
}

// nextSequence returns the sequence that the next write under the key gets: now and then somebody writes to another key before.
func (s *server) nextSequence() uint64 { return s.seq + 1 + virtual.Mix(s.w.script.seed, s.seq, 3)%8/7 }

// renewalDeleted counts renewals that were acknowledged and then deleted by an expiry that was under way.
const renewalDeleted = "renewal deleted by expiry"

// store puts an entry under the key, nil for nothing, and notifies the watchers.
func (s *server) store(now time.Time, e *judge.Entry, kind judge.ChangeKind) {
	before := s.current
	if e != nil {
		s.seq = s.nextSequence()
		e.Revision, e.Stamped = s.seq, s.clock(now)
		s.written = append(s.written, e)
		if e.Write != nil {
			e.Write.Applied, e.Write.Revision, e.Write.BucketCreated, e.Write.Replaced, e.Write.LongestTTL = now, e.Revision, s.created, before, s.longest
		}
	}
	s.current = e
	s.versions = append(s.versions, version{now, e, s.seq})
	s.w.judge.Changed(judge.Change{At: now, Before: before, After: e, Kind: kind, BucketCreated: s.created})
	s.expiring = s.expiring && e != nil && e.Write != nil && !e.Write.Never && e.Write.By == before.Write.By
	if e == nil {
		return
	}
	s.scheduleExpiry()
	for _, c := range s.w.candidates {
		c.source.send(e)
	}
}

// reset empties the bucket and restarts its sequence. A recreated bucket has another creation time.
func (s *server) reset(now time.Time, recreated bool) {
	kind := judge.BySequence
	if recreated {
		kind = judge.ByRecreation
	}
	s.store(now, nil, kind)
	s.seq = 0
	s.versions = nil
	if recreated {
		s.created, s.shown = now, now
	}
	for _, c := range s.w.candidates {
		c.source.stalled = true
	}
}

// rewind takes the bucket back to an earlier state, as when a server loses its last writes or an operator restores a backup.
// It returns false if nothing was written since.
func (s *server) rewind(now time.Time, a *act) bool {
	i := len(s.versions) - 1
	for i >= 0 && s.versions[i].from.After(now.Add(-a.back)) {
		i--
	}
	if i < 0 || s.versions[i].seq == s.seq {
		return false
	}
	before, then := s.current, s.versions[i]
	s.versions = append(s.versions[:i+1], version{now, then.entry, then.seq})
	s.current, s.seq, s.expiring = then.entry, then.seq, false
	e := judge.Event{At: now, What: "is back at sequence", A: s.seq}
	if s.current != nil {
		e.B = s.current.Revision
	}
	s.w.journal.Add(e)
	s.w.judge.Changed(judge.Change{At: now, Before: before, After: s.current, Kind: judge.ByRewind, BucketCreated: s.created, Seq: s.seq})
	s.scheduleExpiry()
	for _, c := range s.w.candidates {
		c.source.stalled = c.source.stalled || a.stallsWatches
	}
	return true
}

// apply carries out a write if the revision under the key allows it, and returns the revision that it found. late: the sender has given the write up.
func (s *server) apply(now time.Time, q *judge.Write, late bool) (found uint64, applied bool) {
	e := s.current
	if e != nil {
		found = e.Revision
	}
	switch {
	case q.By == nil: // an operator or a stranger demands nothing
	case q.Create && e.IsFree() && !q.CannotRead && (!late || found == q.Expect):
		// The client reads the marker of a removal and creates over it; a request that was sent before cannot.
	case q.Create && e == nil:
	case !q.Create && found == q.Expect: // over 0 it creates the key, but not over a marker
	default:
		s.w.journal.Add(judge.Event{At: now, Name: q.Name(), What: q.Verb() + " refused, found" + judge.OrNothing(found), A: found})
		return found, false
	}
	next := &judge.Entry{Value: q.Value, Write: q}
	switch {
	case q.Remove && q.Purge:
		next.Op, next.Value = jetstream.KeyValuePurge, nil
	case q.Remove:
		next.Op, next.Value = jetstream.KeyValueDelete, nil
	}
	s.store(now, next, judge.ByWrite)
	note := ""
	if late {
		note = "after its sender gave up"
	}
	s.w.journal.Add(judge.Event{At: now, Name: q.Name(), What: q.Verb() + " applied", A: found, B: next.Revision, Note: note})
	return found, true
}

// at returns what was under the key at an earlier time, in this bucket.
func (s *server) at(then time.Time) *judge.Entry {
	for i := len(s.versions) - 1; i >= 0; i-- {
		if !s.versions[i].from.After(then) {
			return s.versions[i].entry
		}
	}
	return nil
}
