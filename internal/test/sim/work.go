package sim

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// callNames are the names of the callbacks by their kinds.
var callNames = [...]string{shell.Won: "OnWon", shell.Lost: "OnLost", shell.Campaign: "OnCampaign", shell.Leader: "OnLeaderChange", shell.Next: "OnNext"}

// nextCall plays the callback that is due: it takes its time, and panics now and then. Then the next one follows.
func (c *candidate) nextCall() {
	w := c.w
	call, due := c.shell.NextCall(c.now())
	if !due {
		return
	}
	name := callNames[call.Kind]
	if call.Kind == shell.Next {
		name = fmt.Sprint(name, " ", call.Next)
	}
	takes := [...]time.Duration{shell.Won: c.plan.onWon, shell.Lost: c.plan.onLost, shell.Campaign: c.plan.onCampaign, shell.Leader: 0, shell.Next: 0}[call.Kind]
	w.judge.CallbackBegan(c.ledger, name, w.Now)
	w.note(c.name, name)
	w.After(w.spend(takes), func() {
		c.act(func() {
			w.judge.CallbackReturned(c.ledger, name, w.Now)
			if c.calls++; c.plan.panics && c.calls%3 == 0 {
				w.count("callback panicked") // which the goroutine of the callbacks survives
			}
			c.nextCall()
		})
	})
}

// work is one call of the function given to Run.
type work struct {
	term    *shell.Term
	begun   bool
	ending  bool           // its context has ended
	returns *virtual.Timer // by itself; nil if it does not
}

// startWork starts the work of a term.
func (c *candidate) startWork(t *shell.Term) {
	w, x := c.w, &work{term: t}
	c.work = x
	w.After(0, func() {
		c.act(func() {
			x.begun = true
			w.journal.Add(judge.Event{At: w.Now, Name: c.name, What: "work begins in term", A: t.Core.Number})
			w.judge.WorkBegan(c.ledger, c.publicTerm(t.Core), func() bool { return t.Leads(c.now(), c.rules.Boot) }, func() bool { return x.ending })
			w.observe()
			switch {
			case x.ending:
				c.lingers(x)
			case c.plan.workReturns > 0 && !w.quiet:
				x.returns = w.After(c.plan.workReturns, func() { c.act(func() { c.workReturns(x) }) })
			}
		})
	})
}

// contextEnds is called when the context of the work of a term ends. x is nil if there is no work.
func (x *work) contextEnds(c *candidate, t *shell.Term) {
	if x == nil || x.term != t || x.ending {
		return
	}
	x.ending = true
	x.returns.Stop()
	if x.begun {
		c.lingers(x)
	}
}

// lingers has work go on a little longer than its context.
func (c *candidate) lingers(x *work) {
	c.w.After(c.w.spend(c.plan.workLingers), func() { c.act(func() { c.workReturns(x) }) })
}

// workReturns is called when the work returns: by itself, or because its context has ended.
func (c *candidate) workReturns(x *work) {
	if c.work != x {
		return
	}
	w := c.w
	w.note(c.name, "work returns")
	w.judge.WorkReturned(c.ledger)
	c.work = nil
	_, events := c.shell.WorkReturned(c.now(), x.term, core.WorkEnded, errWork)
	c.report(events)
}

// spend returns how long something takes: none of the quiet.
func (w *world) spend(d time.Duration) time.Duration {
	return max(0, min(d, w.troubleEnds.Sub(w.Now)))
}
