package sessions

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
)

// process is a process with one session, which campaigns for all keys. It drives the session across a link that may be spoiled.
type process struct {
	w     *world
	index int
	plan  *plan
	name  string
	clock judge.Clock
	dice  *virtual.Dice
	ids   uint64
	world core.World
	rules session.Rules

	session    *session.Session
	candidates []*candidate // one for each key
	consumer   consumer
	waker      *virtual.Timer
	crashed    bool
	stopping   bool
	cutUntil   time.Time
	frozen     time.Time
	stalls     time.Time // until then the goroutine that decides is not run once it has decided, and before claims have looked at that
	stalled    bool
	leftOut    bool      // something from the last read of which it was told: that this happens to two in a row is too improbable
	troubled   time.Time // when a fault last affected its requests or deliveries

	renewed  renewed
	told     map[record.Commitment]time.Time // when it was first told of a term, or a session
	requests int
	last     time.Time // when a request was last made
	burst    int
}

// start starts a process in a slot.
func (w *world) start(index int) {
	plan := &w.script.plans[index]
	w.started++
	p := &process{told: map[record.Commitment]time.Time{}, w: w, index: index, plan: plan, name: fmt.Sprint(plan.name, w.started), dice: virtual.NewDice(w.script.seed, virtual.Mix(uint64(index), uint64(w.started), 31))}
	p.clock = judge.Clock{Began: epoch, Drift: plan.drift, Unslewed: plan.unslewed}
	p.consumer.p = p
	p.world = core.World{
		Random: func(d time.Duration) time.Duration { return time.Duration(p.dice.Int64N(int64(max(d, 1)))) },
		NewID:  p.newID,
		NewSecret: func() (s record.Secret) {
			for i := range s {
				s[i] = byte(p.dice.Uint64())
			}
			return s
		},
		Clocks: p.clocks,
		Boot:   func() (time.Duration, bool) { return p.now().Sub(epoch), true },
		Slewed: func() (time.Duration, bool) { return p.clock.Slewed(w.Now), !plan.onlySlewed },
	}
	p.world.Started = p.clocks()
	p.rules = session.Rules{Name: p.name, Timing: w.script.timing, ClaimsAtOnce: w.script.claimsAtOnce, World: &p.world, Stepped: p.stepped, ClaimStepped: p.claimStepped}
	p.session = session.New(&p.rules)
	w.processes = append(w.processes, p)
	w.slots[index] = p
	w.note(p.name, "starts")
	for _, key := range w.script.keys {
		p.candidates = append(p.candidates, newCandidate(p, key))
	}
	for _, c := range p.candidates {
		c.start()
	}
	if !w.quiet && w.dice.Chance(0.02) { // it is stopped before it has opened its session
		w.stop(p)
		return
	}
	p.goOn()
}

func (p *process) newID() string {
	p.ids++
	return fmt.Sprintf("%s.%d", p.name, p.ids)
}

// now is the time by the clock of the process.
func (p *process) now() time.Time { return p.clock.Reads(p.w.Now) }

func (p *process) clocks() lease.Reading {
	return lease.Reading{Instant: lease.Of(p.now()), Boot: p.now().Sub(epoch), Readable: true}
}

// act does something in the process: now or, if the process is frozen, when it goes on.
func (p *process) act(do func()) {
	switch {
	case p.crashed:
	case p.w.Now.Before(p.frozen):
		p.w.At(p.frozen, func() { p.act(do) })
	default:
		do()
		p.w.check()
	}
}

// goOn does what the session decides, and has the claims look again. Other goroutines may go on while the one that does this is not run: they see who leads.
func (p *process) goOn() {
	for range 1000 {
		if p.stalled {
			return
		}
		ops, until := p.session.Next(p.now())
		for i := range ops {
			p.call(&ops[i])
		}
		touched := p.session.Touched()
		if p.w.Now.Before(p.stalls) {
			p.freeze(p.stalls)
			p.stalled = true
			p.act(func() {
				p.stalled = false
				p.look(touched)
				p.goOn()
			})
			return
		}
		if p.look(touched) && len(touched) == 0 && len(ops) == 0 {
			p.wake(until)
			return
		}
	}
	p.w.fail("P9", p.name, "finds no end of what to do")
}

// look has claims look again at what the session has decided, and others see its lease.
func (p *process) look(touched []*session.Claim) (shown bool) {
	for _, c := range touched {
		if x := p.candidateOf(c); x.shell != nil {
			x.shell.DecideAgain(p.now())
		}
	}
	shown = p.session.Show(p.now())
	for _, e := range p.session.Events() {
		p.w.note(p.name, fmt.Sprint(e.Message, " ", e.Attrs))
	}
	return shown
}

func (p *process) wake(at time.Time) {
	p.waker.Stop()
	if !at.IsZero() {
		p.waker = p.w.At(p.clock.When(at), func() { p.act(p.goOn) })
	}
}

func (p *process) candidateOf(c *session.Claim) *candidate {
	for _, x := range p.candidates {
		if x.claim == c {
			return x
		}
	}
	return nil
}

// call sends a request. Faults may spoil the way to the server or back. What it writes may be applied after it has ended.
func (p *process) call(op *session.Op) {
	w := p.w
	p.requests++
	if p.burst++; !w.Now.Equal(p.last) {
		p.last, p.burst = w.Now, 0
	}
	if limit := len(w.script.keys) + 20; p.burst > limit {
		w.fail("P9", p.name, fmt.Sprintf("made more than %d requests in one instant", limit))
		return
	}
	o, answered, leftOut := *op, false, false
	answer := func(r session.Result) {
		p.act(func() {
			if answered || o.Kind == session.Follow && o.ID != p.consumer.op {
				return
			}
			answered = true
			p.learn(r.Changes)
			p.session.Done(p.now(), o.ID, &r)
			switch {
			case o.Kind != session.Follow:
			case r.Outcome == core.Applied:
				p.leftOut = leftOut
				p.consumer.join(r.Position)
			default:
				p.consumer.ends()
				return
			}
			p.goOn()
		})
	}
	q := &write{by: p, sent: w.Now, key: op.Key, replaces: op.Replaces, conditional: true, expires: op.Expires, while: op.While, own: op.Own}
	if op.Kind == session.Follow {
		p.consumer.leave()
		p.consumer.op = op.ID
	} else {
		q.record = record.Parse(op.Value, 0)
	}
	w.At(p.clock.When(o.Limit), func() { answer(session.Result{Outcome: core.Unknown}) })
	f := p.fate()
	if w.Now.Before(p.cutUntil) && !f.buffered || f.requestLost {
		return
	}
	there := w.script.latency + f.requestDelay
	if w.Now.Before(p.cutUntil) {
		there += p.cutUntil.Sub(w.Now)
	}
	w.After(there, func() {
		var r session.Result
		switch {
		case o.Kind == session.Follow:
			r = w.server.read(f.stale, o.AtLeast)
		case f.conflict: // by a server that takes itself for the leader; the leader may store it
			if r = (session.Result{Outcome: core.Refused}); w.dice.Chance(0.5) {
				w.server.apply(q)
			}
		default:
			r = w.server.apply(q)
		}
		if f.replyLost || w.Now.Before(p.cutUntil) {
			return
		}
		takes := w.script.latency
		if f.stale == 0 {
			after := uint64(0)
			if o.Kind == session.Follow && !w.quiet && w.dice.Chance(0.3) { // it takes a while, and shows what is stored meanwhile
				takes += w.dice.UpTo(maxBehind)
				w.After(w.dice.UpTo(takes), func() {
					after = r.Position
					w.server.readOn(&r)
				})
			}
			w.After(w.dice.UpTo(takes), func() { leftOut = !p.leftOut && w.server.leaveOut(&r, after) })
		}
		w.After(takes+f.replyDelay, func() { answer(r) })
	})
}

// learn takes note of the terms and sessions of which the process is told.
func (p *process) learn(changes []session.Change) {
	for i := range changes {
		if r := &changes[i].Record; r.Released.IsZero() && p.told[r.Commitment].IsZero() {
			p.told[r.Commitment] = p.w.Now
		}
	}
}

// fate is what happens to one request.
type fate struct {
	requestDelay, replyDelay, stale  time.Duration
	requestLost, replyLost, conflict bool
	buffered                         bool // it is sent once the link is there again
}

func (p *process) fate() (f fate) {
	d := p.w.dice
	f.buffered = d.Chance(0.3)
	for _, a := range p.w.faults {
		if !a.hits(p) || !d.Chance(a.chance) {
			continue
		}
		p.w.count(faultNames[a.kind])
		p.troubled = p.w.Now.Add(a.delay)
		switch a.kind {
		case requestLost:
			f.requestLost = true
		case requestLate:
			f.requestDelay += d.UpTo(a.delay)
		case replyLost:
			f.replyLost = true
		case replyLate:
			f.replyDelay += d.UpTo(a.delay)
		case conflict:
			f.conflict = true
		case staleRead:
			f.stale = d.UpTo(200 * time.Millisecond)
		}
	}
	return f
}

// consumer delivers what is stored, in the order in which it was, once the process has been told all that was stored before.
type consumer struct {
	p       *process
	joined  bool
	behind  bool   // it has not delivered all that was stored, and leaves out what is replaced until it does
	cursor  uint64 // the last sequence that was delivered, or is on its way
	arrives time.Time
	joins   int    // how often it was made, or has ended
	op      uint64 // the last request that was to make it
}

// maxBehind is how late the server delivers at most, besides the faults.
const maxBehind = 100 * time.Millisecond

// join makes the consumer. It delivers what is stored after the given sequence.
func (x *consumer) join(after uint64) {
	x.joined, x.behind, x.cursor, x.arrives = true, true, after, time.Time{}
	x.joins++
	x.catchUp()
}

// leave has it deliver no more.
func (x *consumer) leave() {
	x.joined = false
	x.joins++
}

// stored takes what was stored just now.
func (x *consumer) stored(e *entry) {
	if !x.joined || x.p.crashed || e.Revision <= x.cursor {
		return
	}
	w, joins := x.p.w, x.joins
	switch {
	case x.behind:
	case w.Now.Before(x.p.cutUntil):
		x.behind = true
	case w.dice.Chance(0.05), x.longest() > maxBehind:
		x.behind = true
		w.After(w.dice.UpTo(x.longest()), func() {
			if x.joins == joins {
				x.catchUp()
			}
		})
	default:
		x.deliver(e)
	}
}

// longest returns for how long the consumer is behind at most, from now on. If that is due to a fault, the process counts as troubled for as long.
func (x *consumer) longest() time.Duration {
	longest := maxBehind
	for _, a := range x.p.w.faults {
		if a.kind == deliveryLate && a.hits(x.p) && a.chance < 0.3 {
			longest = max(longest, a.delay)
			x.p.troubled = timeutil.Later(x.p.troubled, x.p.w.Now.Add(longest))
		}
	}
	return longest
}

func (x *consumer) deliver(e *entry) {
	w, p, joins := x.p.w, x.p, x.joins
	x.cursor = e.Revision
	delay := w.script.latency
	for _, a := range w.faults {
		if a.kind == deliveryLate && a.hits(p) {
			if a.chance < 0.7 {
				delay += w.dice.UpTo(a.delay)
			} else { // longer than any lease
				delay += 2 * w.script.ttl
			}
			p.troubled = w.Now.Add(delay)
		}
	}
	at := w.Now.Add(delay)
	if at.Before(x.arrives) {
		at = x.arrives
	}
	x.arrives = at
	w.At(at, func() {
		p.act(func() {
			if x.joins == joins {
				p.learn([]session.Change{e.Change})
				p.session.Seen(p.now(), &e.Change)
				p.goOn()
			}
		})
	})
}

// catchUp delivers what was stored while the consumer was behind, as far as it is stored still: all at once, or one change after the other, of which others may
// be replaced meanwhile. If the link is cut, it does so when that is there again.
func (x *consumer) catchUp() {
	w, joins := x.p.w, x.joins
	if w.Now.Before(x.p.cutUntil) {
		return
	}
	missed, slow := w.server.after(x.cursor), x.longest() > maxBehind
	for n, e := range missed {
		x.deliver(e)
		if slow && n+1 < len(missed) {
			w.After(w.dice.UpTo(maxBehind), func() {
				if x.joins == joins {
					x.catchUp()
				}
			})
			return
		}
	}
	x.behind = false
}

// gone is called when the bucket is deleted, and the consumer with it. The process notices after a while.
func (x *consumer) gone() {
	x.leave()
	w := x.p.w
	w.After(w.dice.UpTo(w.script.ttl), func() { x.p.act(x.ends) })
}

// ends is called when the consumer has ended: something may have been missed.
func (x *consumer) ends() {
	x.leave()
	x.p.session.MayHaveMissed(x.p.now())
	x.p.goOn()
}
