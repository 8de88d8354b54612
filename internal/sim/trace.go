package sim

import (
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/replay"
)

// tracer records what happens for a replay by the model. The world's mutex guards it.
type tracer struct {
	replay.Trace
	began   time.Time
	index   map[*ledger]int
	entries map[*entry]*replay.Entry
	writes  map[*write]*replay.Write
}

func newTracer(began time.Time) *tracer {
	t := &tracer{began: began, index: map[*ledger]int{}, entries: map[*entry]*replay.Entry{}, writes: map[*write]*replay.Write{}}
	t.Buckets = []time.Time{began}
	return t
}

// add adds a candidate.
func (t *tracer) add(c *candidate) {
	t.index[c.ledger] = len(t.Plans)
	l := c.ledger
	t.Plans = append(t.Plans, replay.Plan{
		Name: c.name, TTL: l.ttl, Interval: l.interval, Margin: l.margin, StandDown: l.standDown,
		Unmodelled: c.plan.plain || c.plan.noRead,
	})
}

// who returns the number of a candidate; -1 for nobody.
func (t *tracer) who(l *ledger) int {
	if i, ok := t.index[l]; ok {
		return i
	}
	return -1
}

func (t *tracer) event(l *ledger, e replay.Event) {
	e.At, e.Who = time.Since(t.began), t.who(l)
	t.Events = append(t.Events, e)
}

// note records an event that has nothing but its kind.
func (t *tracer) note(l *ledger, k replay.Kind) { t.event(l, replay.Event{Kind: k}) }

// call records that a candidate makes a request. q is nil unless it writes.
func (t *tracer) call(l *ledger, o op, q *write) {
	busy := l.working > 0 || l.won != l.lost || l.callback != ""
	switch {
	case o == opGet:
		t.event(l, replay.Event{Kind: replay.Asks, Busy: busy})
	case o == opStatus:
		t.note(l, replay.AsksInfo)
	case q != nil:
		t.event(l, replay.Event{Kind: replay.Sends, Write: t.write(q), Busy: busy})
	}
}

// write returns a write as the replay knows it.
func (t *tracer) write(q *write) *replay.Write {
	w := t.writes[q]
	if w == nil {
		w = &replay.Write{
			By: t.who(q.by), Create: q.create, Expect: q.expect, Deletes: q.remove, Releases: q.releases(),
			Wins: !q.releases() && q.content.Since.Equal(q.sent),
			Left: time.Duration(q.content.StandDownMs) * time.Millisecond, Bucket: q.content.Bucket, Sent: q.sent.Sub(t.began),
		}
		t.writes[q] = w
	}
	return w
}

// served records that the server carried a write out, over the given entry, or refused it.
func (t *tracer) served(q *write, before *entry, late bool, stored *entry) {
	if t.who(q.by) < 0 {
		return
	}
	w := t.write(q)
	w.Served, w.Late, w.Accepted, w.Rev, w.Before = true, late, stored != nil, q.revision, t.entry(before)
	t.event(q.by, replay.Event{Kind: replay.Serves, Write: w, Entry: t.entry(stored)})
}

// returned records the outcome of a call that writes.
func (t *tracer) returned(q *write, err error) {
	w := t.write(q)
	w.Returned, w.At = true, time.Since(t.began)
	switch kv.Classify(err) {
	case kv.Applied:
		w.Outcome = replay.Applied
	case kv.Refused:
		w.Outcome = replay.Refused
		w.Last, w.Named = namedSequence(err)
	case kv.Unsent:
		w.Outcome = replay.Unsent
	}
	t.event(q.by, replay.Event{Kind: replay.Receives, Write: w})
}

// read records what a candidate read, unless it could not.
func (t *tracer) read(l *ledger, found *entry, err error) {
	e := replay.Event{Kind: replay.Reads, Fails: err != nil}
	if err == nil {
		e.Entry = t.entry(found)
	}
	t.event(l, e)
}

// notified records that a candidate is notified of something that may be a removal.
func (t *tracer) notified(l *ledger, e *entry) {
	if e.isMarker() {
		t.note(l, replay.Told)
	}
}

// entry returns an entry as the replay knows it.
func (t *tracer) entry(e *entry) *replay.Entry {
	if e == nil || t.entries[e] != nil {
		return t.entries[e]
	}
	r := &replay.Entry{At: time.Since(t.began), Rev: e.revision, By: t.who(e.by()), Record: !e.isMarker(), Expired: e.expired}
	if c := parseContent(e.value); r.Record {
		r.Release, r.Left = !c.Released.IsZero(), time.Duration(c.StandDownMs)*time.Millisecond
		r.Successors, r.Bucket = c.Successors, c.Bucket
	}
	if r.By >= 0 {
		r.Write = t.write(e.write)
	}
	t.entries[e] = r
	return r
}

// changed records that the server or an operator changed the key.
func (t *tracer) changed(m change) {
	if m.after != nil && m.kind == byWrite && t.who(m.after.by()) >= 0 {
		return // recorded as a write
	}
	e := replay.Event{Kind: replay.Changes, Entry: t.entry(m.after)}
	switch m.kind {
	case byRewind:
		e.Kind, e.Seq = replay.Rewinds, m.seq
	case byRecreation:
		e.Kind = replay.Remakes
		t.Buckets = append(t.Buckets, m.at)
	case bySequence:
		e.Kind = replay.Clears
	}
	t.event(nil, e)
}

// show records what all candidates report.
func (t *tracer) show(candidates []*candidate) {
	for _, c := range candidates {
		if c.crashed || !c.running {
			continue
		}
		e := replay.Event{Kind: replay.Shows}
		switch s := c.State(); {
		case s == election.LeaderElectState:
			e.State = replay.IsElect
		case s == election.LeaderState:
			e.State = replay.Leads
		case s == election.CandidateState:
			e.State = replay.Campaigns
		}
		t.event(c.ledger, e)
	}
}
