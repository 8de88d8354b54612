package sim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// A forgeryKind is one kind of notification that the bucket did not send.
type forgeryKind int

const (
	forgedRelease forgeryKind = iota // the current record as a release, at its own revision
	forgedRemoval                    // a deletion, a purge or an expiry, at the current revision or the next
	forgedRenewal                    // a renewal by an invented leader
	forgedWin                        // an acquisition by an invented leader
	forgedBucket                     // the current record as if from a bucket that was created later
	forgedFuture                     // a renewal by the present holder that is yet to come, or never comes
	replayed                         // a notification that was true once
	numForgeryKinds
)

var forgeryNames = [numForgeryKinds]string{
	"forged release", "forged removal", "forged renewal", "forged win", "forged bucket", "forged renewal from the future", "replayed notification",
}

// storedByStranger returns what a stranger has somebody store under the key: a release of the present holder's term by one who does not know
// its secret, or an earlier record and the write of it; nil if there is none.
func (w *world) storedByStranger(a *act) (value []byte, of *judge.Write) {
	if a.kind == actCopy {
		var records []*judge.Entry
		for _, e := range w.server.written {
			if !e.IsMarker() && e.By() != nil {
				records = append(records, e)
			}
		}
		if len(records) == 0 {
			return nil, nil
		}
		e := records[virtual.Mix(a.draw)%uint64(len(records))]
		return e.Value, e.Write
	}
	current := w.server.current
	if current == nil || current.IsMarker() {
		return nil, nil
	}
	r := record.Parse(current.Value, current.Revision)
	if r.Instance == "" || !r.Released.IsZero() {
		return nil, nil
	}
	r.Released, r.Attempt, r.StandDownMs = w.Now, fmt.Sprintf("forged-%d", a.draw), 0
	var secret record.Secret
	binary.BigEndian.PutUint64(secret[:], virtual.Mix(a.draw, 19))
	switch a.draw % 4 {
	case 0:
		r.Secret = secret
	case 1: // one that opens a commitment, though not that of the term
		r.Secret, r.Commitment = secret, secret.Commitment()
	case 2:
		r.Commitment = record.Commitment{}
	}
	for _, s := range w.slots {
		if s.current != nil && s.current.ledger != current.By() {
			r.Successors = append(r.Successors, s.current.name)
		}
	}
	return r.Encode(), nil
}

// deceive sends forged or replayed notifications to the candidate of a slot, one after another until the fault ends.
func (w *world) deceive(s *slot, a *activeFault, n uint64) {
	now := w.Now
	if !now.Before(a.until) {
		return
	}
	draw := virtual.Mix(w.script.seed, uint64(s.index), uint64(a.start), n, 13)
	c := s.current
	reachable := c != nil && !c.crashed && c.source.open && !now.Before(s.cutUntil)
	if reachable && float64(draw%1000) < a.chance*1000 {
		draw = virtual.Mix(draw)
		if a.kind == notificationReplayed {
			w.replay(c.source, now, draw)
		} else {
			w.forge(c.source, now, draw)
		}
	}
	w.After(max(a.delay, w.script.ttl/20), func() { w.deceive(s, a, n+1) })
}

// replay sends one to three earlier notifications again, in any order.
func (w *world) replay(x *source, now time.Time, draw uint64) {
	written := w.server.written
	for n := range 1 + draw%3 {
		if len(written) > 0 {
			w.sendForged(x, now, written[virtual.Mix(draw, n)%uint64(len(written))], replayed)
		}
	}
}

// forge sends a notification that was never true.
func (w *world) forge(x *source, now time.Time, draw uint64) {
	current := w.server.current
	kind := forgeryKind(draw % uint64(replayed))
	draw = virtual.Mix(draw)
	e := &judge.Entry{Revision: w.server.seq + 1, Stamped: w.server.clock(now)}
	invented := map[string]any{"name": judge.InventedLeader, "instance": judge.InventedLeader, "since": now, "bucket": w.server.created}
	record := map[string]any{}
	if current != nil && json.Unmarshal(current.Value, &record) != nil || record["attempt"] == nil {
		record = invented
	}
	if current == nil && kind == forgedRelease {
		kind = forgedRemoval // there is nothing to release
	}
	switch kind {
	case forgedRelease:
		e.Revision = current.Revision
		record["released"] = now
		delete(record, "stand_down_ms")
		if draw%2 == 0 {
			record["next"] = x.c.name
		}
	case forgedRemoval:
		e.Op = []jetstream.KeyValueOp{jetstream.KeyValueDelete, jetstream.KeyValuePurge}[draw%2]
		if current != nil && draw&2 == 0 {
			e.Revision = current.Revision
		}
		if draw&4 == 0 { // as if the TTL had passed
			e.Stamped = e.Stamped.Add(w.script.ttl)
		}
	case forgedRenewal, forgedWin:
		record = invented
		if kind == forgedRenewal {
			record["since"], record["term"] = w.roundBegan, 1
		}
		if draw%4 == 0 {
			e.Revision += 1_000_000
		}
	case forgedFuture:
		e.Revision += virtual.Mix(draw) % 4
		if draw%4 == 0 {
			e.Revision += 1_000_000
		}
		e.Stamped = e.Stamped.Add(time.Duration(virtual.Mix(draw, 2) % uint64(w.script.ttl)))
	case forgedBucket:
		record["bucket"] = w.server.created.Add(time.Hour)
	}
	if !e.IsMarker() {
		record["attempt"] = fmt.Sprintf("forged-%d", draw)
		e.Value, _ = json.Marshal(record) // all of it can be encoded
	}
	w.sendForged(x, now, e, kind)
}

func (w *world) sendForged(x *source, now time.Time, e *judge.Entry, kind forgeryKind) {
	w.count(forgeryNames[kind])
	w.forgedAny = true
	x.enqueue(delivery{at: now.Add(w.script.latency), entry: e, forged: true})
}
