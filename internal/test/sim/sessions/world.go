package sessions

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/test/schedules"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// world is one schedule while it runs.
type world struct {
	virtual.Engine
	script    *script
	dice      *virtual.Dice // of what happens to requests and deliveries
	journal   *judge.Journal
	server    *server
	slots     []*process // the present process of each; nil if there is none
	processes []*process // all that ever existed
	started   int
	faults    []*fault
	quiet     bool
	closing   bool
	tally     judge.Tally
	coverage  *schedules.Coverage
	failures  []string
	keys      map[string]*ledger
	claims    map[written]storedAt
	forged    map[string]forgery // the last of each key of the bucket
	overlaps  map[string]time.Duration
}

// epoch is when all schedules begin.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Run plays the schedule of a seed, without faults and acts whose names contain one of the given texts.
func Run(seed uint64, without ...string) *schedules.Result {
	s := newScript(seed, without...)
	w := &world{
		Engine: virtual.Engine{Now: epoch}, script: s, dice: virtual.NewDice(seed, 2), journal: &judge.Journal{Began: epoch},
		tally: judge.Tally{}, coverage: schedules.NewCoverage(steps), slots: make([]*process, len(s.plans)), keys: map[string]*ledger{}, claims: map[written]storedAt{}, forged: map[string]forgery{}, overlaps: map[string]time.Duration{},
	}
	w.server = newServer(w)
	for _, key := range s.keys {
		w.keys[key] = &ledger{}
	}
	for i := range s.plans {
		if !s.plans[i].startsLater {
			w.start(i)
		}
	}
	for i := range s.rounds {
		w.playTrouble(&s.rounds[i])
		w.playQuiet()
		if len(w.failures) > 0 {
			break
		}
	}
	w.finish()
	return &schedules.Result{
		Seed: seed, Failures: w.failures, Tally: w.tally, Coverage: w.coverage, Overlaps: w.overlaps,
		Timeline: func() string { return fmt.Sprintf("seed %d: %v%v", seed, s, w.journal) },
	}
}

func (w *world) pass(d time.Duration) { w.RunUntil(w.Now.Add(d)) }

func (w *world) note(name, what string) {
	w.journal.Add(judge.Event{At: w.Now, Name: name, What: what})
}

func (w *world) count(what string) { w.tally[what]++ }

// fail takes note of a broken promise.
func (w *world) fail(promise, name, what string) {
	text := fmt.Sprintf("%s: %s %s", promise, name, what)
	w.note(name, "*** "+text)
	if len(w.failures) < 5 {
		w.failures = append(w.failures, text)
	}
}

// playTrouble plays one round up to the quiet after it.
func (w *world) playTrouble(r *round) {
	w.quiet = false
	w.note("", "trouble begins")
	for i := range r.faults {
		f := &r.faults[i]
		w.After(f.start, func() { w.beginFault(f) })
	}
	for i := range r.acts {
		a := &r.acts[i]
		w.After(a.at, func() {
			w.perform(a)
			w.check()
		})
	}
	w.pass(r.length)
	w.faults = nil
}

// beginFault begins a fault that lasts for a while.
func (w *world) beginFault(f *fault) {
	w.journal.Add(judge.Event{At: w.Now, What: faultNames[f.kind] + " for", D: f.length, A: uint64(f.victim + 1)})
	until := w.Now.Add(f.length)
	for i, p := range w.slots {
		if p == nil || f.victim >= 0 && f.victim != i {
			continue
		}
		switch f.kind {
		case linkCut:
			w.count(faultNames[f.kind])
			p.cutOff(until)
		case frozen:
			w.count(faultNames[f.kind])
			if p.dice.Chance(0.5) {
				p.stalls = until
			} else {
				p.freeze(until)
			}
		}
	}
	if f.kind == linkCut || f.kind == frozen {
		return
	}
	w.faults = append(w.faults, f)
	w.After(f.length, func() {
		w.faults = slices.DeleteFunc(w.faults, func(other *fault) bool { return other == f })
	})
}

// freeze has the process do nothing until then.
func (p *process) freeze(until time.Time) {
	if p.frozen.Before(until) {
		p.frozen, p.troubled = until, timeutil.Later(p.troubled, until)
	}
}

// cutOff cuts the link of the process.
func (p *process) cutOff(until time.Time) {
	if p.cutUntil.Before(until) {
		p.cutUntil, p.troubled = until, timeutil.Later(p.troubled, until)
		p.w.At(until, p.heal)
	}
}

// heal is called when a link is there again. A process that is frozen then receives all the same.
func (p *process) heal() {
	if !p.w.Now.Before(p.cutUntil) && p.consumer.joined {
		p.consumer.catchUp()
		if p.w.dice.Chance(0.3) {
			p.act(p.consumer.ends)
		}
	}
}

// perform carries out an act.
func (w *world) perform(a *act) {
	p, key := w.slots[a.victim], w.script.keys[a.key]
	switch a.kind {
	case start:
		if p == nil {
			w.count(actNames[a.kind])
			w.start(a.victim)
		}
		return
	case evict, forgeClaim, usurp, closeByStranger, spoilSession, forgeClaimRelease, forgeSessionRelease, restore, clone, forgeSettled, rewind, remake:
		w.actOnBucket(a, session.ClaimKey(key), p)
		return
	}
	if p == nil {
		return
	}
	c := p.candidates[a.key]
	w.count(actNames[a.kind])
	w.note(p.name, actNames[a.kind])
	switch a.kind {
	case stop:
		w.stop(p)
	case crash:
		w.crash(p, a)
	case stopKey:
		p.act(func() { c.restarts = true; c.stop(); p.goOn() })
	case loopPanics:
		p.act(func() { c.panics(); p.goOn() })
	case resign:
		p.act(func() { c.end(core.Resigned); p.goOn() })
	case transfer:
		if to := w.slots[(a.victim+1)%len(w.slots)]; to != nil {
			p.act(func() { c.handOver(to); p.goOn() })
		}
	}
}

// stop ends a process in order: its session first, and then one election after the other.
func (w *world) stop(p *process) {
	w.slots[p.index] = nil
	p.stopping = true
	p.act(func() {
		p.session.Close(p.now())
		at := w.Now
		for _, c := range p.candidates {
			c.restarts, c.asked = false, true
			at = at.Add(w.dice.UpTo(w.script.logs))
			w.At(at, func() { p.act(func() { c.stop(); p.goOn() }) })
		}
		p.goOn()
	})
}

// crash ends a process without any order. A witness may release its session soon, or late.
func (w *world) crash(p *process, a *act) {
	p.crashed = true
	w.slots[p.index] = nil
	secret, id := p.session.Secret(), p.session.ID()
	if !p.plan.witness || id == "" {
		return
	}
	after, name := a.draw%(100*time.Millisecond), witnessed
	if a.chance%4 == 0 {
		after, name = a.draw, late
	}
	w.After(after, func() {
		e := w.server.keys[session.SessionKey(id)]
		if e == nil || e.Record.Commitment != secret.Commitment() || e.Record.ClosedBy != "" || !e.Record.Released.IsZero() {
			return
		}
		r := e.Record
		r.Attempt, r.Released, r.Secret, r.Reason = "w."+id, w.Now, secret, string(core.Died)
		w.count(name)
		w.server.apply(&write{by: p, sent: w.Now, key: e.Key, record: r, replaces: e.Revision, conditional: true})
		w.check()
	})
}

// playQuiet has nothing go wrong for so long that each key must be led then.
func (w *world) playQuiet() {
	w.quiet = true
	w.note("", "quiet begins")
	longest := time.Duration(0)
	for _, p := range w.processes {
		if !p.crashed {
			longest = max(longest, p.cutUntil.Sub(w.Now), p.frozen.Sub(w.Now))
		}
	}
	for i, p := range w.slots {
		if p == nil {
			w.start(i)
		}
	}
	if len(w.server.rewound) > 0 { // a session whose record survived may learn of what was lost only when it next reads everything
		w.pass(40 * w.script.ttl)
	}
	w.pass(max(0, longest) + 10*w.script.ttl)
	requests := map[*process]int{}
	most := 4 + int(5*w.script.ttl/w.script.timing.Interval)
	for _, p := range w.processes {
		requests[p] = p.requests
	}
	for key, e := range w.server.keys { // the record of a session that is over is made anew once, so that the server removes it
		if _, is := session.SessionOf(key); is && (e.by == nil || e.by.crashed || key != session.SessionKey(e.by.session.ID())) {
			most++
		}
	}
	w.pass(4 * w.script.ttl)
	if len(w.failures) > 0 {
		return
	}
	for _, key := range w.script.keys {
		if w.leaderOf(key) == nil {
			w.fail("P8", key, "has no leader after the quiet")
		}
	}
	for _, p := range w.processes {
		if !p.crashed && p.plan.workReturns == 0 && p.requests-requests[p] > most {
			w.fail("P9", p.name, fmt.Sprintf("made %d requests in 4 TTLs of quiet, more than %d", p.requests-requests[p], most))
		}
	}
	w.tryGivingUp()
	w.tryHandover()
}

// tryHandover has a leader stop in the quiet: each of its keys is led again soon after its work has ended.
func (w *world) tryHandover() {
	first := w.leaderOf(w.script.keys[0])
	if first == nil || w.server.remade > 0 && w.dice.Chance(0.5) {
		return
	}
	w.stop(first.p)
	lingers := slices.Max(first.p.plan.lingers)
	w.pass(lingers + 4*first.p.plan.callbacks + 10*w.script.logs + time.Second)
	if lingers > w.script.timing.ReleaseTimeout/2 {
		return
	}
	for _, key := range w.script.keys {
		if w.leaderOf(key) == nil {
			w.fail("P8", key, "has no leader a second after the last was stopped")
		}
	}
}

// tryGivingUp has a leader resign its key in the quiet, or hand it over: another leads soon after its work has ended, and if it does not end, a lease after the
// release timeout.
func (w *world) tryGivingUp() {
	first := w.leaderOf(w.script.keys[0])
	if first == nil {
		return
	}
	others := w.others(first)
	if len(others) == 0 {
		return
	}
	if t := &w.script.timing; first.lingers() > t.ReleaseTimeout/2 {
		first.p.act(func() { first.end(core.Resigned); first.p.goOn() })
		w.pass(t.ReleaseTimeout + 3*t.Interval + timing.LapseTime(t.LeaseTime(), w.script.ttl, false) + 4*first.p.plan.callbacks + 10*w.script.logs + time.Second)
		if w.leaderOf(first.key) == nil {
			w.fail("P8", first.key, "is led by nobody a lease after the release timeout, because work goes on")
		}
		return
	}
	to, resigns := virtual.Pick(w.dice, others...), w.dice.Chance(0.5)
	first.p.act(func() {
		if resigns {
			first.end(core.Resigned)
		} else {
			first.handOver(to.p)
		}
		first.p.goOn()
	})
	w.pass(first.lingers() + 4*first.p.plan.callbacks + 10*w.script.logs + time.Second)
	switch next := w.leaderOf(first.key); {
	case resigns && (next == nil || next == first):
		w.fail("P8", first.key, "is led by nobody else a second after it was resigned")
	case !resigns && next != to:
		w.fail("P8", to.name(), "does not lead a second after the key was handed over to it")
	}
	w.pass(w.script.ttl) // for so long the first leaves the key to others
}

// others returns the candidates of other processes that campaign for the key of one.
func (w *world) others(c *candidate) (others []*candidate) {
	for _, p := range w.slots {
		if p == nil || p == c.p {
			continue
		}
		if x := p.candidates[slices.Index(w.script.keys, c.key)]; x.claim.Step() == session.Watching {
			others = append(others, x)
		}
	}
	return others
}

// leaderOf returns a leader of a key.
func (w *world) leaderOf(key string) *candidate {
	for _, p := range w.processes {
		for _, c := range p.candidates {
			if c.key == key && c.isLeader() {
				return c
			}
		}
	}
	return nil
}

// finish stops all processes.
func (w *world) finish() {
	w.closing = true
	w.note("", "all are stopped")
	for _, p := range w.slots {
		if p != nil {
			w.stop(p)
		}
	}
	w.pass(20 * w.script.ttl)
	for _, p := range w.processes {
		for _, c := range p.candidates {
			if !p.crashed && (c.running || c.busy()) && len(w.failures) == 0 {
				w.fail("P8", c.name(), "has not returned after it was stopped: "+c.claim.Step().String())
			}
		}
	}
}

func (w *world) journalWrite(name, what string, over, revision uint64, took time.Duration) {
	w.journal.Add(judge.Event{At: w.Now, Name: name, What: what, A: over, B: revision, D: took})
}
