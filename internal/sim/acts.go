package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/sim/judge"
)

// perform carries out an act.
func (w *world) perform(a *act) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.checkSoon()
	now := time.Now()
	index := a.slot
	if index == holder {
		index = w.holderSlot()
	}
	c := w.slots[index].current
	switch {
	case a.kind == actStart:
		if c == nil || !c.running {
			w.start(w.slots[index])
			w.count(a.kind.String())
		}
	case !a.kind.hitsCandidate():
		w.journal.Add(judge.Event{At: now, What: a.kind.String()})
		if w.actOnBucket(a, now) {
			w.count(a.kind.String())
		}
	case c != nil:
		w.journal.Add(judge.Event{At: now, Name: c.name, What: a.kind.String()})
		w.count(a.kind.String())
		w.actOnCandidate(c, a.kind)
	}
}

func (w *world) actOnCandidate(c *candidate, kind actKind) {
	switch kind {
	case actStop:
		w.stop(c)
	case actCancel:
		c.wanted = false
		c.ledger.Asked()
		w.trace.Note(c.ledger, replay.Quits)
		c.cancel()
	case actCrash:
		w.crash(c)
	case actResign:
		c.ledger.Asked()
		w.trace.Note(c.ledger, replay.Resigns)
		w.runs.Add(1)
		go func() {
			defer w.runs.Done()
			ctx, cancel := context.WithTimeout(context.Background(), w.script.ttl)
			defer cancel()
			_ = c.Resign(ctx) // it may hold nothing
		}()
	case actReadsFail:
		c.noRead, c.ledger.NoRead = true, true
		w.trace.Note(c.ledger, replay.Vanishes)
	case actStatusFails:
		c.noStatus = true
	case actClose:
		w.disconnect(c)
	case actClone:
		w.clone(c)
	}
}

// clone starts a copy of a candidate on the next host, as of a machine that was cloned: both have one instance. The candidate that ran there
// crashes.
func (w *world) clone(c *candidate) {
	s := w.slots[(c.slot.index+1)%len(w.slots)]
	if s.current == c {
		return
	}
	if s.current != nil {
		w.crash(s.current)
	}
	settings.SetInstance(w.newCandidate(s).Election, c.Status().Instance)
	w.start(s)
}

// actOnBucket changes the bucket or the server's clock, and reports whether it could.
func (w *world) actOnBucket(a *act, now time.Time) bool {
	s := w.server
	switch a.kind {
	case actClock:
		s.setClock(now, a.step, s.rate)
		return true
	case actRate:
		s.setClock(now, 0, a.rate)
		return true
	case actRecreate, actResetSequence:
		s.reset(now, a.kind == actRecreate)
		return true
	case actRewind:
		return s.rewind(now, a)
	case actCreated: // a bucket whose creation time is not pinned is another one then, as far as can be known
		if w.script.pinned {
			s.shown = now
		}
		return w.script.pinned
	case actTTL:
		s.setTTL(now, a.ttl)
		return true
	}
	q := &judge.Write{Sent: now} // over whatever is stored
	switch a.kind {
	case actDelete, actPurge:
		if s.current == nil || s.current.IsMarker() {
			return false
		}
		q.Remove, q.Purge = true, a.kind == actPurge
	case actRelease, actCopy:
		if q.Value, q.Of = w.storedByStranger(a); q.Value == nil {
			return false
		}
		q.Content, q.Copies = judge.ParseContent(q.Value), true
		w.forgedAny = true
		w.trace.End() // the model has no such stranger
	case actForeignRecord:
		q.Value = []byte(fmt.Sprintf(`{"name":"stranger","instance":"stranger","attempt":"%d","since":"2000-01-01T00:00:00Z"}`, s.seq))
	case actForeignCreate:
		if s.current != nil {
			return false
		}
		fallthrough
	case actBareName:
		q.Value = []byte("stranger")
	}
	return s.apply(now, q, false) == nil
}

// stop ends a candidate for good, in the background.
func (w *world) stop(c *candidate) {
	c.wanted, c.slot.current = false, nil
	c.ledger.Asked()
	w.trace.Note(c.ledger, replay.Quits)
	w.runs.Add(1)
	go func() {
		defer w.runs.Done()
		_ = c.Shutdown(context.Background())
	}()
}

// disconnect closes the connection of a candidate for good.
func (w *world) disconnect(c *candidate) {
	c.closed = true
	w.trace.Note(c.ledger, replay.Vanishes)
	c.view.disconnect()
	for _, x := range w.server.watchers {
		if x.v == c.view {
			x.end()
		}
	}
	c.ledger.Disconnected(time.Now())
}

// crash ends a candidate without a release: from now on it sends nothing, and the judge ignores it.
func (w *world) crash(c *candidate) {
	c.crashed = true
	c.ledger.Crashed()
	w.trace.Note(c.ledger, replay.Crashes)
	w.stop(c)
}
