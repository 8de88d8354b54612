package sessions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/timeutil"
)

// ledger is what is known of a key.
type ledger struct {
	newestBy *process
	newest   uint64    // the number of the latest term that led
	created  time.Time // and the bucket of that term
	excuse   string    // of two that lead at present
	since    time.Time
}

// renewed is a session, and when the last write of its record was sent that was stored.
type renewed struct {
	id   string
	sent time.Time
}

// written is a write, by the bucket and its revision there.
type written struct {
	created  time.Time
	revision uint64
}

// forgery is a release that a stranger forged, a record that he restored, or a claim that he took.
type forgery struct {
	at       time.Time
	revision uint64
	over     record.Commitment // of what was stored before
}

// forge takes note of a forgery.
func (w *world) forge(key string) {
	f := forgery{at: w.Now, revision: w.server.sequence + 1}
	if e := w.server.keys[key]; e != nil {
		f.over = e.Record.Commitment
	}
	w.forged[key] = f
}

// storedAt is when a claim was stored, and its commitment.
type storedAt struct {
	at         time.Time
	commitment record.Commitment
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
	if c.shell.HasWork && c.worked != c.term.Core.Number {
		w.fail("P4", c.name(), fmt.Sprintf("leads in term %d, and its work has not begun", c.term.Core.Number))
	}
	if c.leads && c.number == c.term.Core.Number {
		return
	}
	c.leads, c.number = true, c.term.Core.Number
	w.count(led)
	created := c.term.Core.BucketCreated
	if cmp.Or(created.Compare(l.created), cmp.Compare(c.number, l.newest)) > 0 {
		l.newest, l.created, l.newestBy = c.number, created, c.p
	} else if len(w.server.rewound) == 0 && w.excuse(c, l.newestBy, written{l.created, l.newest}) == "" {
		w.fail("P5", c.name(), fmt.Sprintf("leads in term %d after term %d", c.number, l.newest))
	}
}

// judgeOverlap judges that at most one leads a key.
func (w *world) judgeOverlap(key string, l *ledger, leaders []*candidate) {
	if l.excuse != "" {
		w.overlaps[l.excuse] = max(w.overlaps[l.excuse], w.Now.Sub(l.since))
	}
	before := l.excuse
	if l.excuse = ""; len(leaders) < 2 {
		return
	}
	slices.SortFunc(leaders, func(a, b *candidate) int { return cmp.Compare(a.term.Core.Number, b.term.Core.Number) })
	first, second := leaders[0], leaders[len(leaders)-1]
	if l.excuse = w.excuse(first, second.p, termOf(second)); l.excuse == "" {
		w.fail("P2", key, fmt.Sprintf("is led by %s in term %d and by %s in term %d", first.name(), first.term.Core.Number, second.name(), second.term.Core.Number))
	}
	if before == "" {
		l.since = w.Now
		w.count(l.excuse)
	}
}

// hiddenTTLs is after how many TTLs a session has read everything again though nothing asked for it: 40 by its clock, which may be slow.
const hiddenTTLs = 45

// excuse returns why a process may have come to lead beside another: where history has gone back, for as long as two leases; and after a stranger has pretended
// that a term or a session is over, if the process was not told of that term, or session, before it took the key. It returns "" if nothing excuses that.
func (w *world) excuse(first *candidate, second *process, term written) string {
	for _, r := range w.server.rewound {
		switch ago := w.Now.Sub(r.at); {
		case ago < 3*w.script.ttl:
			return rewound
		case ago < hiddenTTLs*w.script.ttl && term.revision <= r.before: // the sequence of the claim was delivered before, so that it is not delivered again
			return hidden
		}
	}
	own, claim := session.SessionKey(first.p.session.ID()), session.ClaimKey(first.key)
	recent := func(key string) bool {
		f := w.forged[key]
		return f.at.Add(3*w.script.ttl).After(w.Now) || slices.ContainsFunc(w.server.rewound, func(r rewinding) bool { // the first was not told of it
			return !f.at.Before(r.at) && f.revision <= r.before && w.Now.Sub(r.at) < hiddenTTLs*w.script.ttl
		})
	}
	untold := func(of record.Commitment) bool {
		at, told := second.told[of]
		return !told || at.After(w.claims[term].at)
	}
	if recent(claim) && (untold(w.claims[termOf(first)].commitment) || untold(w.forged[claim].over)) || recent(own) && untold(first.p.session.Secret().Commitment()) {
		return believed
	}
	for key, f := range w.forged { // of a session between them, which states for how long its successors wait for the first
		if strings.HasPrefix(key, session.SessionKey("")) && recent(key) && untold(f.over) {
			return believed
		}
	}
	return ""
}

// termOf returns the write that won the term of a candidate.
func termOf(c *candidate) written { return written{c.term.Core.BucketCreated, c.term.Core.Number} }

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
	w.claims[written{w.server.created, e.Revision}] = storedAt{w.Now, q.record.Commitment}
	if q.by == nil || q.by.crashed {
		return
	}
	// After history went back the revision of its last renewal may be that of another write.
	if len(w.server.rewound) == 0 && before != nil && before.Record.ClosedBy != "" && q.record.ClosedBy == "" && q.record.Released.IsZero() {
		w.fail("P2", q.by.name, "renews a session that was closed")
	}
	if before != nil && before.by != nil {
		w.judgeTaking(q, before)
	}
	if q.record.ClosedBy != "" && before.Record.Released.IsZero() {
		w.judgeClosing(q)
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
		if ago := w.Now.Sub(c.panicked); ago > w.script.ttl/2 && ago < 4*w.script.ttl { // its key was left to others after a lease, as that of an election is
			continue
		}
		t := c.busyTerm()
		// After the release timeout, others lead a lease later.
		leftToOthers := t != nil && t.Outcome.How == core.WorkGoesOn && q.record.StandDownMs >= w.script.timing.LeaseTime().Milliseconds()
		// The release of an earlier bucket hits the same revision by chance. Others take it for what a stranger wrote.
		late := !q.record.BucketCreated.Equal(w.server.created)
		if q.key == session.ClaimKey(c.key) && t != nil && before != nil && t.Number == before.Revision && !leftToOthers && !late {
			w.fail("P3", c.name(), "releases the key before its callbacks and work have returned")
		}
		claim := w.server.keys[session.ClaimKey(c.key)] // the process may not have been told of a copy by a stranger
		if q.key == session.SessionKey(q.record.Instance) && c.busy() && claim != nil && claim.by == q.by && claim.Record.Instance == q.record.Instance && claim.Record.Released.IsZero() {
			w.fail("P3", c.name(), "releases the session before the callbacks and work of this key have returned")
		}
	}
}

// busyTerm returns the term whose callbacks or work go on; nil if none do.
func (c *candidate) busyTerm() *core.Term {
	switch {
	case c.work != nil:
		return c.work.term.Core
	case c.busy() && c.term != nil:
		return c.term.Core
	}
	return nil
}

// judgeClosing judges that a process closes a session only once its lease is over.
func (w *world) judgeClosing(q *write) {
	for _, p := range w.processes {
		if id := p.session.ID(); session.SessionKey(id) != q.key || p.renewed.id != id || p.crashed || len(w.server.rewound) > 0 || w.server.remade > 0 {
			continue
		}
		if end := p.clock.After(p.renewed.sent, w.script.timing.LeaseTime()); w.Now.Before(end) {
			w.fail("P6", q.by.name, fmt.Sprintf("closes the session of %s, whose lease lasts for %v", p.name, end.Sub(w.Now)))
		}
	}
}

// judgeTaking judges that a process takes a claim from another only if that has released it, or if its session is over.
func (w *world) judgeTaking(q *write, before *entry) {
	owner := before.Record.Instance
	if q.key != before.Key || !strings.HasPrefix(q.key, "c.") || q.record.Instance == owner || !before.Record.Released.IsZero() || len(w.server.rewound) > 0 || w.server.remade > 0 {
		return
	}
	if own := w.server.keys[session.SessionKey(owner)]; own != nil && own.by == before.by && own.Record.ClosedBy == "" && own.Record.Released.IsZero() {
		w.fail("P6", q.by.name, fmt.Sprintf("takes %s over revision %d, whose session is open", q.key, before.Revision))
	}
}

// judgeEnd judges that a leader, or leader-elect, had a reason to end.
func (w *world) judgeEnd(c *candidate, e *core.Event) {
	p := c.p
	w.count("term ended: " + string(e.Reason))
	claim := w.server.keys[session.ClaimKey(c.key)]
	if claim == nil || claim.Revision != e.Term.Number {
		return
	}
	switch own := w.server.keys[session.SessionKey(claim.Record.Instance)]; {
	case c.asked, len(w.server.rewound) > 0, w.server.remade > 0:
	case own == nil, own.by != p, own.Record.ClosedBy != "":
	case !w.Now.Before(p.clock.After(p.renewed.sent, w.script.timing.LeaseTime())):
	case e.Reason == core.Deadline && w.Now.Sub(p.troubled) < w.script.ttl:
	default:
		w.fail("P6", c.name(), fmt.Sprintf("gives up term %d although it holds the key: %s", e.Term.Number, e.Reason))
	}
}
