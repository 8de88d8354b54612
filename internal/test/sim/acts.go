package sim

import (
	"bytes"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/sim/judge"
)

// perform carries out an act.
func (w *world) perform(a *act) {
	defer w.checkSoon()
	now := w.Now
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
		c.act(c.stop)
	case actCrash:
		w.crash(c)
	case actResign:
		c.ledger.Asked()
		c.act(func() {
			c.endTerm(core.Resigned)
		})
	case actTransfer:
		if to := w.successorOf(c); to != nil {
			c.act(func() { c.handOver(to) })
		}
	case actGone:
		if to := w.successorOf(c); to != nil {
			c.act(func() { c.handOver(to) })
			w.crash(to)
		}
	case actReadsFail:
		c.noRead, c.ledger.NoRead = true, true
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
	w.newCandidate(s, c.rules.Instance)
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
		s.setTTL(a.ttl)
		w.refresh(a.untold)
		return true
	case actPause, actResume:
		paused := a.kind == actPause
		if s.paused == paused {
			return false
		}
		s.paused = paused
		w.refresh(0)
		return true
	}
	q := &judge.Write{Sent: now} // over whatever is stored
	switch a.kind {
	case actIntrude:
		return w.intrude(a)
	case actNever:
		q.Value, q.Never = w.endlessly(a.draw), true
		q.Content = judge.ParseContent(q.Value)
		if s.current != nil && bytes.Equal(q.Value, s.current.Value) {
			q.Copies = true
			if s.current.By() != nil {
				q.Of = s.current.Write
			}
		}
	case actOverlong:
		q.Value, q.Conditional = w.overlong(a.draw), a.draw%4 < 2
		q.Content = judge.ParseContent(q.Value)
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
	_, applied := s.apply(now, q, false)
	return applied
}

// stop ends a candidate for good.
func (w *world) stop(c *candidate) {
	c.wanted, c.slot.current = false, nil
	c.ledger.Asked()
	c.act(c.stop)
}

// disconnect closes the connection of a candidate for good.
func (w *world) disconnect(c *candidate) {
	c.closed = true
	c.ledger.Disconnected(w.Now)
	c.source.close()
	c.act(func() {
		if r := c.request; r != nil && !r.over {
			r.closed()
		} else if c.plan.connected {
			c.fail()
		}
	})
}

// crash ends a candidate without a release: from now on it sends nothing, and the judge ignores it.
func (w *world) crash(c *candidate) {
	c.crashed = true
	c.ledger.Crashed()
	c.wanted, c.slot.current, c.running = false, nil, false
}

// successorOf returns another candidate that would answer a release now; nil if there is none.
func (w *world) successorOf(c *candidate) *candidate {
	for _, s := range w.slots {
		if s.current != nil && s.current != c && s.current.plan.connected && s.current.ready() {
			return s.current
		}
	}
	return nil
}

// refresh has candidates load the bucket's info, as an operator asks for: all whose slot has no bit in untold.
func (w *world) refresh(untold uint64) {
	for _, s := range w.slots {
		c := s.current
		if c == nil || untold>>s.index&1 == 1 || !c.plan.connected || !c.looping || w.Now.Before(s.cutUntil) {
			continue
		}
		w.After(w.script.latency, func() {
			c.act(func() {
				if !c.looping {
					return
				}
				c.call(&request{op: opStatus, limit: w.Now.Add(bucketTimeout), then: func(r core.Result) {
					if c.looping {
						c.tell(core.Loaded{Bucket: r.Bucket, Err: r.Err, Failure: r.Failure})
					}
				}})
			})
		})
	}
}
