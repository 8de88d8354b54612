package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

const kvDelete = jetstream.KeyValueDelete

// removal says what ended the time in which something stood under the key.
type removal int

const (
	removalWritten   removal = iota // a write, maybe of a deletion
	removalExpired                  // the TTL
	removalWiped                    // an expiry that was under way when the record was written
	removalRemade                   // the bucket was deleted and made again
	removalForgotten                // the bucket lost everything, its sequence too
	removalRewound                  // the bucket went back to what it was
)

// mutation is a change of what stands under the key.
type mutation struct {
	at            time.Time
	before, after *entry // nil: nothing
	removal       removal
	bucket        time.Time
	seq           uint64 // to which the history was rewound
}

// resets says whether the bucket lost all it held.
func (m mutation) resets() bool { return m.removal == removalRemade || m.removal == removalForgotten }

// rewinds says whether the bucket lost its last writes.
func (m mutation) rewinds() bool { return m.removal == removalRewound }

// judge compares what candidates do and say with the truth about the bucket, promise by promise. It sees what is
// written and when, what is acknowledged to whom, what candidates say of themselves, and their callbacks and work.
type judge struct {
	ttl      time.Duration
	journal  *journal
	tally    tally
	ledgers  []*ledger
	history  []mutation
	named    bool // whether a refusal names the last sequence of the key
	resets   int
	rewinds  int
	removals int // by operators, and resets
	newest   election.Term
	newestAt time.Time // when that was won
	failures []string

	overlaps []*overlap
	longest  map[string]time.Duration // of those that were allowed, by what allows them
	leader   *ledger                  // who led last
}

func newJudge(ttl time.Duration, journal *journal, tally tally) *judge {
	return &judge{ttl: ttl, journal: journal, tally: tally, longest: map[string]time.Duration{}}
}

// fail notes that a promise was broken.
func (j *judge) fail(at time.Time, promise, who, format string, a ...any) {
	if len(j.failures) >= 3 { // what is broken stays so
		return
	}
	text := fmt.Sprintf(format, a...)
	j.journal.add(event{at: at, who: who, what: "*** " + promise + ": " + text})
	j.failures = append(j.failures, fmt.Sprintf("%s: %s %s", promise, who, text))
}

// enlist begins a ledger for a candidate.
func (j *judge) enlist(name string, p *plan, ttl time.Duration) *ledger {
	l := &ledger{
		name: name, ttl: ttl, margin: p.marginOf(ttl), lease: ttl - p.marginOf(ttl), standDown: p.standDownOf(ttl), plain: p.plain,
		interval: p.intervalOf(ttl), unread: p.unread,
	}
	j.ledgers = append(j.ledgers, l)
	return l
}

func (j *judge) started(l *ledger) { l.running, l.quit = true, false }

// disconnected takes in that the connection of a candidate is closed for good.
func (j *judge) disconnected(l *ledger, at time.Time) { l.closed = at }

// cutOff takes in that a write of a candidate failed because its connection is closed.
func (j *judge) cutOff(l *ledger, at time.Time) {
	if l.cut.IsZero() {
		l.cut = at
	}
}

// leaves notes that the end of a term has a cause.
func (j *judge) leaves(l *ledger) { l.leaving = true }

// moved takes in a change of what stands under the key.
func (j *judge) moved(m mutation) {
	j.history = append(j.history, m)
	switch {
	case m.resets():
		j.resets++
		j.removals++
	case m.rewinds():
		j.rewinds++
		j.removals++
	case m.removal == removalWritten && m.after.write.by == nil && m.after.marks():
		j.removals++
	}
	for _, l := range j.ledgers {
		j.loses(l, m)
	}
	if m.before == nil || m.before.write == nil || m.before.write.by == nil {
		return
	}
	if l := m.before.write.by; m.after == nil || m.after.write == nil || m.after.write.by != l || m.rewinds() {
		l.displaced = m.at
	}
}

// loses takes in whether a change rewinds the history in which a candidate holds the key, or shows that to it. A refusal that
// names a sequence always does. Otherwise only the record of another candidate does that was written after the win: a lagging
// replica may show an earlier one, or none.
func (j *judge) loses(l *ledger, m mutation) {
	var by *write
	if m.after != nil {
		by = m.after.write
	}
	switch {
	case by != nil && by.by == l && !m.rewinds():
		l.last, l.rewound = by, time.Time{}
	case !m.rewinds() || l.last == nil:
	case by == l.last:
		l.rewound = time.Time{}
	case l.rewound.IsZero():
		l.rewound = m.at
	}
	switch foreign := by != nil && by.by != l && !m.after.marks(); {
	case l.rewound.IsZero() || l.hold == nil || !j.named && !(foreign && m.after.revision > l.hold.win.revision):
		l.shown = time.Time{}
	case l.shown.IsZero():
		l.shown = m.at
	}
}

// refused takes in that a write was refused with the last sequence of the key. P11: a renewal that is refused with an earlier
// one than it demanded proves that its writer lost the key.
func (j *judge) refused(q *write, last uint64, at time.Time) {
	if l := q.by; l.renews(q) && 0 < last && last < q.expect {
		l.refuted = at
	}
}

// read takes in what a candidate reads. P11: the record of somebody else that stands between its win and its last write proves
// that it lost the key.
func (j *judge) read(l *ledger, e *entry, at time.Time) {
	l.read = e
	foreign := e.write != nil && e.write.by != l
	if g := l.hold; g != nil && !g.over && foreign && g.win.revision < e.revision && e.revision < l.revision {
		l.refuted = at
	}
}

// discovered returns by when a connected leader must have found out that it lost the key when history was rewound: after its
// next renewal. It is zero if that does not tell.
func (j *judge) discovered(l *ledger) time.Time {
	if l.shown.IsZero() || !l.troubled.Before(l.last.sent) || l.unread && !j.named {
		return time.Time{}
	}
	return l.shown.Add(l.interval + discovery)
}

// sent takes in that a write is on its way. P3: a release is not, before callbacks and work have returned.
func (j *judge) sent(q *write, at time.Time) {
	l := q.by
	if l.heard != nil {
		q.told, q.toldAt, q.before = l.heard()
	}
	q.read = l.read
	if g := l.hold; l.renews(q) && !g.mayLead {
		q.owed, q.knew = g.counts.Sub(at), g.knew
	}
	if !q.remove && q.note.Released.IsZero() {
		return
	}
	if l.hold != nil {
		l.hold.over = true
	}
	switch {
	case l.status.IsLeader():
		j.fail(at, "P3", l.name, "releases the key while it leads")
	case l.working > 0:
		j.fail(at, "P3", l.name, "releases the key before its work has returned")
	case l.won != l.lost, l.callback != "" && l.hold != nil && l.hold.seen: // a win that it gives back at once has no callbacks
		j.fail(at, "P3", l.name, "releases the key before its callbacks have returned (running: %q, OnWon %d, OnLost %d)", l.callback, l.won, l.lost)
	}
	if g := l.hold; !q.remove && g != nil && !g.mayLead && !l.leaving {
		l.gaveBack = at
	}
	// A bare name does not tell a win from a renewal that hits another's record by chance after a reset.
	if g := l.hold; !q.remove && g != nil && !g.mayLead && (!l.plain || j.mistaken(g.win) == "") {
		left := time.Duration(q.note.StandDownMs) * time.Millisecond
		if left < g.counts.Sub(at) {
			j.fail(at, "P2", l.name, "releases as leader-elect and passes on %v of its stand-down, of which %v is left", left, g.counts.Sub(at))
		}
	}
}

// asked takes in that a candidate asks for the bucket's state.
func (j *judge) asked(l *ledger, at time.Time) {
	l.surveyed = at
	if l.hold != nil && at.Equal(l.hold.renewed) {
		l.hold.surveyed = true
	}
}

// known takes in that a candidate knows of its own write that it was applied: by the answer, or because it has read it.
func (j *judge) known(q *write, at time.Time) {
	if !q.known.IsZero() && !q.answered.Equal(at) {
		return
	}
	l := q.by
	first := q.known.IsZero()
	if first {
		q.known = at
		if !q.remove {
			defer func() { l.revision = q.revision }()
		}
	}
	switch {
	case q.remove || !q.note.Released.IsZero():
	case l.wins(q) && !q.answered.IsZero():
		standDown, knew := l.required(q)
		bound := q.sent.Add(l.lease)
		l.hold = &grip{win: q, counts: at.Add(standDown), knew: knew, bound: bound, prior: bound, renewed: at}
		l.leaving = false
		l.refuted = time.Time{}
		j.tally["key won"]++
	case first && l.renews(q) && at.Before(l.hold.bound):
		g := l.hold
		g.prior, g.renewed, g.surveyed = g.bound, at, false
		if bound := q.sent.Add(l.lease); bound.After(g.bound) {
			g.bound = bound
		}
		g.mayLead = g.mayLead || !q.sent.Before(g.counts)
	}
}

// observe asks everybody how he stands, and says whether somebody leads.
func (j *judge) observe(at time.Time) (led bool) {
	for _, l := range j.ledgers {
		if l.crashed || l.status == nil {
			l.leads, l.held = false, nil
			continue
		}
		term, leads := l.status.Term()
		state := l.status.State()
		was := l.leads && l.term == term
		l.term, l.leads = term, leads
		if leads {
			led = true
			j.leading(l, at, was)
		}
		if l.working > 0 && l.valid() && !(leads && term == l.workTerm) {
			j.fail(at, "P1", l.name, "does not lead in term %d, which is valid", l.workTerm.Number)
		}
		holds := state == election.LeaderElectState || state == election.LeaderState
		if l.held != nil && !holds {
			j.ended(l, at)
		}
		l.held = nil
		if holds {
			l.held = l.hold
			if l.hold != nil {
				l.hold.seen = true
			}
		}
	}
	j.measure(at)
	return led
}

// lingers looks whether the context of work has ended with the term. It may be about to end in this very instant: then it
// says so, and is to be asked again later.
func (j *judge) lingers(at time.Time) (again bool) {
	for _, l := range j.ledgers {
		switch {
		case l.working == 0 || l.crashed || l.valid() || l.workCtx.Err() != nil:
			l.lapsed = time.Time{}
		case l.lapsed.IsZero():
			l.lapsed, again = at, true
		case at.After(l.lapsed):
			j.fail(at, "P3", l.name, "does not lead any more, and the context of its work has not ended")
		}
	}
	return again
}

// leading judges one that says it leads. P1: not after its deadline. P2: not before the stand-down, and nobody else does.
// P5: with a larger number than all before. P7: by a win that was acknowledged to it.
func (j *judge) leading(l *ledger, at time.Time, was bool) {
	g := l.hold
	switch {
	case g == nil || g.win.revision != l.term.Number:
		j.fail(at, "P7", l.name, "leads in term %d, which no win began that was acknowledged to it", l.term.Number)
	case !at.Before(g.bound):
		j.fail(at, "P1", l.name, "leads though its lease ended %v ago", at.Sub(g.bound))
	case !g.mayLead:
		j.fail(at, "P2", l.name, "leads without a renewal sent after its stand-down, which ends in %v", g.counts.Sub(at))
	case !l.running:
		j.fail(at, "P7", l.name, "leads though it does not run")
	case !l.cut.IsZero() && at.After(l.cut):
		j.fail(at, closedPromise, l.name, "leads though a write told it that its connection is closed")
	}
	switch {
	case !l.refuted.IsZero() && at.After(l.refuted):
		j.fail(at, "P11", l.name, "leads in term %d though it was given proof %v ago that it lost the key", l.term.Number, at.Sub(l.refuted))
	case !j.discovered(l).IsZero() && at.After(j.discovered(l)):
		j.fail(at, "P11", l.name, "leads in term %d, which a renewal would have disproved since the history was rewound, %v ago", l.term.Number, at.Sub(l.rewound))
	}
	if was || len(j.failures) > 0 {
		return
	}
	j.tally["term led"]++
	if j.leader != nil && j.leader != l {
		j.tally["failover"]++
	}
	j.leader = l
	j.journal.add(event{at: at, who: l.name, what: "leads in term", a: l.term.Number})
	j.numbered(l, at)
	for _, other := range j.ledgers {
		if other != l && other.leads && !other.crashed && other.status.IsLeader() {
			j.together(other, l, at)
		}
	}
}

// numbered judges the number of a new term: numbers grow in the order in which the key was won. A bucket that forgets has no
// numbers that grow, nor has one who takes over a release that it heard of before the bucket was made again.
func (j *judge) numbered(l *ledger, at time.Time) {
	win := l.hold.win
	order, later := l.term.Compare(j.newest), !win.applied.Before(j.newestAt)
	switch {
	case order > 0 && later, order < 0 && !later: // the latter was won before another that led first
	case l.term.Bucket.Before(win.bucket), j.resetBetween(win.applied, j.newestAt), j.rewoundBetween(win.applied, j.newestAt):
		j.tally["allowed: numbers after a reset"]++
	default:
		j.fail(at, "P5", l.name, "leads in term %s beside or after term %s", l.term.Token(), j.newest.Token())
	}
	if later && !l.term.Bucket.Before(win.bucket) {
		j.newest, j.newestAt = l.term, win.applied
	}
}

// resetBetween says whether the bucket was reset between two times, in whatever order they are given.
func (j *judge) resetBetween(a, b time.Time) bool { return j.between(a, b, mutation.resets) > 0 }

// rewoundBetween says whether the history of the bucket was rewound between two times.
func (j *judge) rewoundBetween(a, b time.Time) bool { return j.between(a, b, mutation.rewinds) > 0 }

func (j *judge) between(a, b time.Time, such func(mutation) bool) (n int) {
	if b.Before(a) {
		a, b = b, a
	}
	for _, m := range j.history {
		if such(m) && !m.at.Before(a) && !m.at.After(b) {
			n++
		}
	}
	return n
}

// ended judges the end of a hold on the key. P6: there was a cause.
func (j *judge) ended(l *ledger, at time.Time) {
	g := l.held
	g.over = g.over || !l.leaving // who leaves renews until all has wound up
	switch {
	case l.leaving:
		j.tally["hold ended: voluntarily"]++
	case !l.displaced.Before(g.win.applied):
		j.tally["hold ended: key lost"]++
	case !at.Before(g.bound), g.surveyed && !at.Before(g.prior):
		// The second: the renewal was acknowledged in time, but before it counted the bucket was looked at.
		j.tally["hold ended: deadline"]++
	case j.resets > 0 && !l.surveyed.Before(g.renewed):
		// It had taken the key over from one who, like itself, had not noticed that the bucket was made again, and has
		// looked at the bucket now.
		j.tally["hold ended: bucket made again"]++
	case !l.closed.IsZero():
		j.tally["hold ended: connection closed"]++
	default:
		j.fail(at, "P6", l.name, "gives up term %d though it holds the key, and the lease lasts for %v", g.win.revision, g.bound.Sub(at))
	}
	j.journal.add(event{at: at, who: l.name, what: "holds the key no more"})
}

// called judges the beginning of a callback. P4: they alternate, one at a time, and OnLost comes by the deadline.
func (j *judge) called(l *ledger, which string, at time.Time) {
	if l.callback != "" {
		j.fail(at, "P4", l.name, "%s is called while %s runs", which, l.callback)
	}
	switch which {
	case "OnWon":
		if l.won != l.lost {
			j.fail(at, "P4", l.name, "OnWon is called twice without OnLost")
		}
		l.won++
		l.wonBy = l.hold
	case "OnLost":
		if l.won != l.lost+1 {
			j.fail(at, "P4", l.name, "OnLost answers no OnWon")
		}
		if g := l.wonBy; g != nil && at.After(g.bound) && !l.callbackAt.After(g.bound) && !l.crashed {
			j.fail(at, "P4", l.name, "OnLost begins %v after the deadline", at.Sub(g.bound))
		}
		if l.status.IsLeader() && !l.crashed {
			j.fail(at, "P4", l.name, "OnLost is called while it leads")
		}
	}
	l.callback = which
}

// announced judges what a candidate tells its user of the leader. P10: nobody is told of a leader that no record in the bucket
// ever named.
func (j *judge) announced(l *ledger, leader election.Leader, at time.Time) {
	if leader.Name == inventedLeader {
		j.fail(at, "P10", l.name, "tells its user that %q leads, which only a forged update said", leader.Name)
	}
}

// answered takes in that a callback is about to return.
func (j *judge) answered(l *ledger, which string, at time.Time) {
	l.callback, l.callbackAt = "", at
	if which == "OnLost" {
		l.lost++
	}
}

// worksOn takes in that work begins.
func (j *judge) worksOn(l *ledger, t election.Term, ctx context.Context) {
	l.working++
	l.workTerm, l.valid, l.workCtx = t, t.Valid, ctx
}

// idle takes in that work is about to return. If its context has not ended, it does so by itself and ends the term.
func (j *judge) idle(l *ledger) {
	l.working--
	l.quit = l.quit || l.workCtx.Err() == nil
	l.leaving = l.leaving || l.workCtx.Err() == nil
}

// closedPromise is that a connection which is closed for good ends a term at once, and Start and Run with its error.
const closedPromise = "closed"

// closedLimit is how long a candidate may take in the quiet to find out that its connection is closed for good: until its next
// campaign, or for as long as it holds back.
func (j *judge) closedLimit() time.Duration { return j.ttl + hangingLimit(j.ttl) + j.ttl/10 }

// unreturned says whether a candidate runs on a closed connection, and judges it if that has lasted since the given time for
// longer than the limit.
func (j *judge) unreturned(quiet, at time.Time) (found bool) {
	for _, l := range j.ledgers {
		if l.closed.IsZero() || !l.running || l.crashed {
			continue
		}
		found = true
		if since := latest(quiet, l.closed); at.Sub(since) > j.closedLimit() {
			j.fail(at, closedPromise, l.name, "has not returned %v after its connection was closed", at.Sub(since))
		}
	}
	return found
}

// returned judges a candidate whose Start or Run has returned: all is wound up. If its connection is closed the error says so,
// unless it was told to stop or its work returned.
func (j *judge) returned(l *ledger, err error, told bool, at time.Time) {
	l.running = false
	switch {
	case !l.closed.IsZero() && !told && !l.quit && !errors.Is(err, nats.ErrConnectionClosed):
		j.fail(at, closedPromise, l.name, "has returned %v though its connection is closed", err)
	case l.status.IsLeader():
		j.fail(at, "P7", l.name, "leads though it has returned")
	case l.status.State() != election.UnknownState:
		j.fail(at, "P7", l.name, "is %v though it has returned", l.status.State())
	case l.callback != "" || l.won != l.lost:
		j.fail(at, "P4", l.name, "has returned, and OnWon was called %d times, OnLost %d times (running: %q)", l.won, l.lost, l.callback)
	case l.working > 0:
		j.fail(at, "P3", l.name, "has returned before its work has")
	}
}

// nextDeadline returns just after when the next lease must have ended; zero if there is none.
func (j *judge) nextDeadline(now time.Time) (next time.Time) {
	for _, l := range j.ledgers {
		if l.held == nil {
			continue
		}
		for _, end := range []time.Time{l.held.bound, j.discovered(l)} {
			if at := end.Add(1); at.After(now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// close ends the measuring.
func (j *judge) close() {
	for _, l := range j.ledgers {
		l.leads = false
	}
	j.measure(time.Now())
}
