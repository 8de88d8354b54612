package sim

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/sim/judge"
)

// dispatcher calls the callbacks of a candidate, one at a time, as the dispatcher of package election does: when it gets to it, it compares what it
// announced with how things are.
type dispatcher struct {
	c         *candidate
	busy      bool
	latest    *core.Term // the last that came to lead
	announced *core.Term // the one that OnWon was called for and OnLost was not; nil if there is none
	campaigns int        // waiting to be announced
	idle      func()     // is called once nothing is left to call
	calls     uint64     // every third may panic
}

// maxCampaigns is how many campaigns may wait to be announced.
const maxCampaigns = 16

func (d *dispatcher) campaigned() {
	if d.c.plan.onCampaign > 0 {
		d.campaigns = min(d.campaigns+1, maxCampaigns)
		d.wake()
	}
}

// wake has callbacks called that are due.
func (d *dispatcher) wake() {
	if !d.busy {
		d.busy = true
		d.c.w.after(0, func() { d.c.act(d.next) })
	}
}

// next calls the callback that is due.
func (d *dispatcher) next() {
	switch {
	case d.announced != nil && d.announced.Lease.State != core.Leader:
		d.announced = nil
		d.call("OnLost", d.c.plan.onLost)
	case d.announced == nil && d.latest != nil && d.latest == d.c.term && d.c.leads(d.latest):
		d.announced = d.latest
		d.call("OnWon", d.c.plan.onWon)
	case d.campaigns > 0:
		d.campaigns--
		d.call("OnCampaign", d.c.plan.onCampaign)
	default:
		d.busy = false
		if idle := d.idle; idle != nil {
			d.idle = nil
			idle()
			return
		}
		d.c.quietened()
	}
}

// call plays a callback: it takes its time, and panics now and then.
func (d *dispatcher) call(name string, takes time.Duration) {
	c, w := d.c, d.c.w
	w.judge.CallbackBegan(c.ledger, name, w.now)
	w.note(c.name, name)
	w.after(w.spend(takes), func() {
		c.act(func() {
			w.judge.CallbackReturned(c.ledger, name, w.now)
			if d.calls++; c.plan.panics && d.calls%3 == 0 {
				w.count("callback panicked") // which the dispatcher survives
			}
			d.next()
		})
	})
}

// work is one call of the function given to Run.
type work struct {
	term    *core.Term
	begun   bool
	ending  bool   // its context has ended
	returns *timer // by itself; nil if it does not
}

// startWork starts the work of a term.
func (c *candidate) startWork(t *core.Term) {
	w, x := c.w, &work{term: t}
	c.work = x
	w.after(0, func() {
		c.act(func() {
			x.begun = true
			w.journal.Add(judge.Event{At: w.now, Name: c.name, What: "work begins in term", A: t.Number})
			w.judge.WorkBegan(c.ledger, c.publicTerm(t), func() bool { return c.leads(t) }, func() bool { return t.Lease.State == core.Follower })
			w.observe()
			switch {
			case x.ending:
				c.lingers(x)
			case c.plan.workReturns > 0 && !w.quiet:
				x.returns = w.after(c.plan.workReturns, func() { c.act(func() { c.workReturns(x, true) }) })
			}
		})
	})
}

// contextEnds is called when the context of the work ends. x is nil if there is no work.
func (x *work) contextEnds(c *candidate) {
	if x == nil || x.ending {
		return
	}
	x.ending = true
	x.returns.stop()
	if x.begun {
		c.lingers(x)
	}
}

// lingers has work go on a little longer than its context.
func (c *candidate) lingers(x *work) {
	c.w.after(c.w.spend(c.plan.workLingers), func() { c.act(func() { c.workReturns(x, false) }) })
}

// workReturns is called when the work returns: by itself, or because its context has ended.
func (c *candidate) workReturns(x *work, byItself bool) {
	if c.work != x {
		return
	}
	w := c.w
	w.note(c.name, "work returns")
	w.judge.WorkReturned(c.ledger)
	if byItself = byItself && x.term.Lease.State != core.Follower; byItself {
		c.result = errWork
		c.tell(core.End{Term: x.term, Why: core.WorkEnded})
	}
	c.work = nil
	c.quietened()
}

// spend returns how long something takes: none of the quiet.
func (w *world) spend(d time.Duration) time.Duration {
	return max(0, min(d, w.troubleEnds.Sub(w.now)))
}
