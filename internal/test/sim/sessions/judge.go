package sessions

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timeutil"
)

// ledger is what is known of a key.
type ledger struct {
	newest  uint64 // the largest number of a term that led, in this bucket
	remade  int    // how often the bucket had been made again then
	since   time.Time
	two     bool
	overlap time.Duration
}

// renewed is a session, and when the last write of its record was sent that was stored.
type renewed struct {
	id   string
	sent time.Time
}

// check judges what all candidates report now.
func (w *world) check() {
	for _, key := range w.script.keys {
		l := w.keys[key]
		var leaders []*candidate
		for _, p := range w.processes {
			for _, c := range p.candidates {
				if c.key != key {
					continue
				}
				if leads := c.isLeader(); leads {
					leaders = append(leaders, c)
					w.judgeLeader(c, l)
				} else {
					c.leads = false
				}
			}
		}
		w.judgeOverlap(key, l, leaders)
	}
}

// judgeLeader judges one leader.
func (w *world) judgeLeader(c *candidate, l *ledger) {
	if !c.running {
		w.fail("P7", c.name(), "leads although its run has returned")
	}
	sent := c.p.renewed.sent
	if end := c.p.clock.After(sent, w.script.timing.LeaseTime()); sent.IsZero() || w.Now.After(end) {
		w.fail("P1", c.name(), fmt.Sprintf("leads %v after its lease was over", w.Now.Sub(end)))
	}
	if c.leads && c.number == c.term.Core.Number {
		return
	}
	c.leads, c.number = true, c.term.Core.Number
	w.count(led)
	if l.remade != w.server.remade {
		l.remade, l.newest = w.server.remade, 0
	}
	if c.number <= l.newest && len(w.server.rewound) == 0 && w.server.remade == 0 {
		w.fail("P5", c.name(), fmt.Sprintf("leads in term %d after term %d", c.number, l.newest))
	}
	l.newest = max(l.newest, c.number)
}

// judgeOverlap judges that at most one leads a key. Where history has gone back, two may for as long as two leases.
func (w *world) judgeOverlap(key string, l *ledger, leaders []*candidate) {
	if l.two {
		l.overlap = max(l.overlap, w.Now.Sub(l.since))
	}
	if l.two = len(leaders) > 1; !l.two {
		return
	}
	if l.since.IsZero() || w.Now.Sub(l.since) > l.overlap {
		l.since = w.Now
	}
	recent := false
	for _, at := range w.server.rewound {
		recent = recent || w.Now.Sub(at) < 3*w.script.ttl
	}
	if !recent {
		w.fail("P2", key, fmt.Sprintf("is led by %s in term %d and by %s in term %d", leaders[0].name(), leaders[0].term.Core.Number, leaders[1].name(), leaders[1].term.Core.Number))
	} else {
		w.count(twoLeaders)
	}
}

// stored judges a write when it is stored.
func (w *world) stored(q *write, before, e *entry) {
	what := "stores " + q.key
	switch {
	case !q.record.Released.IsZero():
		what = "releases " + q.key
	case q.record.ClosedBy != "":
		what = "closes " + q.key
	}
	name := ""
	if q.by != nil {
		name = q.by.name
	}
	over := uint64(0)
	if before != nil {
		over = before.Revision
	}
	w.journalWrite(name, what, over, e.Revision, w.Now.Sub(q.sent))
	if q.by == nil || q.by.crashed {
		return
	}
	if id := q.record.Instance; id == q.by.session.ID() && q.key == session.SessionKey(id) && q.record.ClosedBy == "" && q.record.Released.IsZero() {
		if r := &q.by.renewed; r.id != id {
			*r = renewed{id, q.sent}
		} else {
			r.sent = timeutil.Later(r.sent, q.sent)
		}
	}
	if q.record.Released.IsZero() {
		return
	}
	for _, c := range q.by.candidates {
		if q.key == session.ClaimKey(c.key) && c.busy() && before != nil && c.term != nil && c.term.Core.Number == before.Revision {
			w.fail("P3", c.name(), "releases the key before its callbacks and work have returned")
		}
		if claim := w.server.keys[session.ClaimKey(c.key)]; q.key == session.SessionKey(q.record.Instance) && c.busy() && claim != nil && claim.Record.Instance == q.record.Instance {
			w.fail("P3", c.name(), "releases the session before the callbacks and work of this key have returned")
		}
	}
}

// judgeEnd judges that a leader, or leader-elect, had a reason to end.
func (w *world) judgeEnd(c *candidate, e *core.Event) {
	p := c.p
	w.count("term ended: " + string(e.Reason))
	claim, own := w.server.keys[session.ClaimKey(c.key)], w.server.keys[session.SessionKey(p.session.ID())]
	switch {
	case c.asked, len(w.server.rewound) > 0, w.server.remade > 0:
	case claim == nil || claim.Revision != e.Term.Number, own == nil, own.by != p, own.Record.ClosedBy != "":
	case !w.Now.Before(p.clock.After(p.renewed.sent, w.script.timing.LeaseTime())):
	case e.Reason == core.Deadline && w.Now.Sub(p.troubled) < w.script.ttl:
	default:
		w.fail("P6", c.name(), fmt.Sprintf("gives up term %d although it holds the key: %s", e.Term.Number, e.Reason))
	}
}
