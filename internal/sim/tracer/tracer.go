// Package tracer records what happens in a simulated schedule as package replay needs it. It translates the facts that package
// judge has of writes, entries and changes, each of them once: facts that are one remain one in the trace.
package tracer

import (
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
)

// Tracer records the [replay.Trace] of one schedule, on virtual time. Its methods must be called one at a time.
type Tracer struct {
	replay.Trace
	began   time.Time
	ended   bool
	ttl     time.Duration
	index   map[*judge.Ledger]int
	entries map[*judge.Entry]*replay.Entry
	writes  map[*judge.Write]*replay.Write
}

// New returns a tracer of a schedule that begins now, on a bucket with the given TTL.
func New(began time.Time, ttl time.Duration) *Tracer {
	t := &Tracer{began: began, ttl: ttl, index: map[*judge.Ledger]int{}, entries: map[*judge.Entry]*replay.Entry{}, writes: map[*judge.Write]*replay.Write{}}
	t.Buckets = []time.Time{began}
	return t
}

// Add adds a candidate.
func (t *Tracer) Add(l *judge.Ledger) {
	t.index[l] = len(t.Plans)
	t.Plans = append(t.Plans, replay.Plan{
		Name: l.Name, TTL: t.ttl, Interval: l.Interval, Margin: l.Margin, StandDown: l.StandDown,
		Unmodelled: l.Plain || l.NoRead,
	})
}

// who returns the number of a candidate; -1 for nobody.
func (t *Tracer) who(l *judge.Ledger) int {
	if i, ok := t.index[l]; ok {
		return i
	}
	return -1
}

// End ends the record: what follows is no matter of the model.
func (t *Tracer) End() { t.ended = true }

// Event records an event of a candidate, or of nobody.
func (t *Tracer) Event(l *judge.Ledger, e replay.Event) {
	if t.ended {
		return
	}
	e.At, e.Who = time.Since(t.began), t.who(l)
	t.Events = append(t.Events, e)
}

// Note records an event that has nothing but its kind.
func (t *Tracer) Note(l *judge.Ledger, k replay.Kind) { t.Event(l, replay.Event{Kind: k}) }

// Asked records that a candidate requests the key.
func (t *Tracer) Asked(l *judge.Ledger) { t.Event(l, replay.Event{Kind: replay.Asks, Busy: l.Busy()}) }

// Sent records that a candidate sends a write.
func (t *Tracer) Sent(q *judge.Write) {
	t.Event(q.By, replay.Event{Kind: replay.Sends, Write: t.write(q), Busy: q.By.Busy()})
}

// write returns a write as the replay knows it.
func (t *Tracer) write(q *judge.Write) *replay.Write {
	w := t.writes[q]
	if w == nil {
		w = &replay.Write{
			By: t.who(q.By), Create: q.Create, Expect: q.Expect, Deletes: q.Remove, Releases: q.Releases(),
			Wins: !q.Releases() && q.Content.Since.Equal(q.Sent),
			Left: time.Duration(q.Content.StandDownMs) * time.Millisecond, Bucket: q.Content.Bucket, Sent: q.Sent.Sub(t.began),
		}
		t.writes[q] = w
	}
	return w
}

// Served records that the server carried a write out, over the given entry, or refused it.
func (t *Tracer) Served(q *judge.Write, before *judge.Entry, late bool, stored *judge.Entry) {
	if t.who(q.By) < 0 {
		return
	}
	w := t.write(q)
	w.Served, w.Late, w.Accepted, w.Rev, w.Before = true, late, stored != nil, q.Revision, t.entry(before)
	t.Event(q.By, replay.Event{Kind: replay.Serves, Write: w, Entry: t.entry(stored)})
}

// Returned records the outcome of a call that writes. A refusal may name the last sequence of the key.
func (t *Tracer) Returned(q *judge.Write, err error, last uint64, named bool) {
	w := t.write(q)
	w.Returned, w.At = true, time.Since(t.began)
	switch kv.Classify(err) {
	case kv.Applied:
		w.Outcome = replay.Applied
	case kv.Refused:
		w.Outcome = replay.Refused
		w.Last, w.Named = last, named
	case kv.Unsent:
		w.Outcome = replay.Unsent
	}
	t.Event(q.By, replay.Event{Kind: replay.Receives, Write: w})
}

// Read records what a candidate read, unless it could not.
func (t *Tracer) Read(l *judge.Ledger, found *judge.Entry, err error) {
	e := replay.Event{Kind: replay.Reads, Fails: err != nil}
	if err == nil {
		e.Entry = t.entry(found)
	}
	t.Event(l, e)
}

// Notified records that a candidate is notified of something that may be a removal.
func (t *Tracer) Notified(l *judge.Ledger, e *judge.Entry) {
	if e.IsMarker() {
		t.Note(l, replay.Told)
	}
}

// entry returns an entry as the replay knows it.
func (t *Tracer) entry(e *judge.Entry) *replay.Entry {
	if e == nil || t.entries[e] != nil {
		return t.entries[e]
	}
	r := &replay.Entry{At: time.Since(t.began), Rev: e.Revision, By: t.who(e.By()), Record: !e.IsMarker(), Expired: e.Expired}
	if c := judge.ParseContent(e.Value); r.Record {
		r.Release, r.Left = !c.Released.IsZero(), time.Duration(c.StandDownMs)*time.Millisecond
		r.Successors, r.Bucket = c.Successors, c.Bucket
	}
	if r.By >= 0 {
		r.Write = t.write(e.Write)
	}
	t.entries[e] = r
	return r
}

// Changed records that the server or an operator changed the key.
func (t *Tracer) Changed(m judge.Change) {
	if m.After != nil && m.Kind == judge.ByWrite && t.who(m.After.By()) >= 0 {
		return // recorded as a write
	}
	e := replay.Event{Kind: replay.Changes, Entry: t.entry(m.After)}
	switch m.Kind {
	case judge.ByRewind:
		e.Kind, e.Seq = replay.Rewinds, m.Seq
	case judge.ByRecreation:
		e.Kind = replay.Remakes
		t.Buckets = append(t.Buckets, m.At)
	case judge.BySequence:
		e.Kind = replay.Clears
	}
	t.Event(nil, e)
}

// Shown records the state that a candidate reports.
func (t *Tracer) Shown(l *judge.Ledger, s election.State) {
	e := replay.Event{Kind: replay.Shows}
	switch s {
	case election.LeaderElectState:
		e.State = replay.IsElect
	case election.LeaderState:
		e.State = replay.Leads
	case election.CandidateState:
		e.State = replay.Campaigns
	}
	t.Event(l, e)
}
