package sim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
)

// An intruder may write the key, and have notifications of its own choice delivered. It announces a write before it makes it, so that the others take the
// lease that they time by it for older than it is. Meanwhile genuine notifications may be lost without a sign, and the leader may be cut off.

// intrusion says what an intruder does.
type intrusion struct {
	revision  uint64 // that it announces
	value     []byte // what it announces
	writes    time.Duration
	releases  bool          // it writes a record and a release of its own; otherwise a copy of the leader's record
	hides     bool          // genuine notifications are lost from the announcement on
	cutsOff   bool          // the leader is cut off before the write
	releaseAt time.Duration // after that record
}

// intrude has an intruder begin, and reports whether it could: a candidate must hold the key by a record.
func (w *world) intrude(a *act) bool {
	s, draw := w.server, a.draw
	next := func(n uint64) uint64 {
		draw = virtual.Mix(draw)
		return draw % n
	}
	current := s.current
	if current == nil || current.IsMarker() || current.By() == nil || current.Write.Releases() || current.By().Plain {
		return false
	}
	i := intrusion{releases: next(2) == 0, hides: next(3) > 0, cutsOff: next(3) > 0}
	i.writes = w.script.ttl * time.Duration(30+next(80)) / 100
	i.releaseAt = time.Duration(20+next(100)) * time.Millisecond
	i.revision = s.seq + 1 + next(4)
	switch {
	case i.releases && next(4) > 0: // it announces the leader's next renewal, and writes over that, before others find the renewal to be overdue
		i.revision, i.hides = s.nextSequence(), true
		i.writes = w.script.ttl * time.Duration(40+next(45)) / 100
	case next(4) == 0:
		i.revision = 1_000_000
	}
	i.value = announcedCopy(current.Value, a.draw)
	announced := &judge.Entry{Revision: i.revision, Value: i.value, Stamped: s.clock(w.Now.Add(i.writes)).Add(time.Duration(1 + next(1000)))}
	for _, c := range w.candidates {
		if c.running && c.source.open && c.ledger != current.By() {
			w.sendForged(c.source, w.Now, announced, forgedFuture)
			if i.hides {
				c.source.mutedUntil = w.Now.Add(i.writes)
			}
		}
	}
	holder := w.slots[w.holderSlot()]
	w.After(i.writes, func() { w.carryOut(&i, holder, current.By(), a.draw) })
	return true
}

// announcedCopy returns a copy of a record with another id of the attempt.
func announcedCopy(value []byte, draw uint64) []byte {
	var r map[string]any
	if json.Unmarshal(value, &r) != nil {
		return value
	}
	r["attempt"] = fmt.Sprintf("announced-%d", draw)
	value, _ = json.Marshal(r) // all of it can be encoded
	return value
}

// carryOut has an intruder write, if the same candidate still holds the key.
func (w *world) carryOut(i *intrusion, holder *slot, by *judge.Ledger, draw uint64) {
	s := w.server
	current := s.current
	if current == nil || current.IsMarker() || current.By() != by || current.Write.Releases() || w.quiet {
		return
	}
	if i.cutsOff {
		holder.cutUntil = timeutil.Later(holder.cutUntil, timeutil.Earlier(w.Now.Add(w.script.ttl), w.troubleEnds))
		if c := holder.current; c != nil {
			c.ledger.Troubled(holder.cutUntil)
		}
		w.At(holder.cutUntil, func() {
			if c := holder.current; c != nil && !w.Now.Before(holder.cutUntil) {
				c.act(c.source.reconnected)
			}
		})
	}
	if i.releases {
		w.storeByIntruder(w.ownRecord(draw, nil))
		w.After(i.releaseAt, func() {
			if e := s.current; e != nil && !e.IsMarker() && e.By() == nil && !w.quiet {
				w.storeByIntruder(w.ownRecord(draw, by))
			}
		})
		return
	}
	if s.seq < i.revision-1 && i.revision < 1_000_000 { // it writes other keys until the revision is the one that it has announced
		s.seq = i.revision - 1
	}
	w.storeByIntruder(announcedCopy(current.Value, draw))
}

// storeByIntruder stores a value by a write that demands what it replaces, as candidates write.
func (w *world) storeByIntruder(value []byte) {
	w.server.apply(w.Now, &judge.Write{Sent: w.Now, Value: value, Content: judge.ParseContent(value), Copies: true, Conditional: true}, false)
	w.checkSoon()
}

// ownRecord returns a record of the intruder's own term, or the release of that term, which proves itself, for the other candidates than the leader that was
// overwritten.
func (w *world) ownRecord(draw uint64, overwritten *judge.Ledger) []byte {
	var secret record.Secret
	binary.BigEndian.PutUint64(secret[:], virtual.Mix(draw, 23))
	r := record.Record{
		Name: "intruder", Instance: "intruder", Attempt: fmt.Sprintf("intruder-%d", draw), Since: epoch, Term: 9, BucketCreated: w.server.created, Won: "released",
		IntervalMs: record.Milliseconds(w.script.ttl / 2), LeaseMs: record.Milliseconds(w.script.ttl * 9 / 10), Commitment: secret.Commitment(),
	}
	if overwritten != nil {
		r.Attempt, r.Released, r.Secret, r.HeadStartMs = fmt.Sprintf("intruder-%d-released", draw), w.Now, secret, 25
		for _, s := range w.slots {
			if s.current != nil && s.current.ledger != overwritten {
				r.Successors = append(r.Successors, s.current.name)
			}
		}
		r.Successors = r.Successors[:min(len(r.Successors), record.MaxSuccessors)]
	}
	return r.Encode()
}

// endlessly returns what a stranger stores that never expires: the bare name or the record of somebody, or the answer of a server.
func (w *world) endlessly(draw uint64) []byte {
	switch current := w.server.current; {
	case draw%3 == 0:
		return []byte("stranger")
	case draw%3 == 1 && current != nil && !current.IsMarker():
		return current.Value
	}
	return w.overlong(draw)
}

// overlong returns a record that states a lease, and a stand-down, of a length that no bucket allows.
func (w *world) overlong(draw uint64) []byte {
	length := []time.Duration{0, time.Millisecond, time.Hour, 1000 * time.Hour}
	r := record.Record{
		Name: "stranger", Instance: "stranger", Attempt: fmt.Sprintf("stranger-%d", draw), Since: epoch, BucketCreated: w.server.created,
		LeaseMs: length[virtual.Mix(draw)%4].Milliseconds(), StandDownMs: length[virtual.Mix(draw, 2)%4].Milliseconds(), IntervalMs: length[virtual.Mix(draw, 3)%4].Milliseconds(),
	}
	if draw%2 == 0 {
		r.Commitment = record.Commitment{1}
	}
	return r.Encode()
}
