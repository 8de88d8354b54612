package sessions

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
)

// candidate drives the shell of one claim: it is a shell.Driver in virtual time.
type candidate struct {
	p     *process
	key   string
	claim *session.Claim
	shell *shell.Shell
	term  *shell.Term
	waker *virtual.Timer
	work  *work

	running, looping, returning bool
	restarts                    bool // it is started again when its run has returned
	panicked                    time.Time
	logs                        time.Time // until then its loop logs what it has reported

	// What is judged.
	asked    bool   // to give up the key since it last led
	won      bool   // OnWon was called, and OnLost has not returned
	callback string // that runs
	leads    bool   // when it was last looked at
	number   uint64 // of that term
	worked   uint64 // the last term whose work began
}

func newCandidate(p *process, key string) *candidate {
	return &candidate{p: p, key: key, claim: p.session.Campaign(key)}
}

func (c *candidate) start() {
	c.running, c.looping, c.asked, c.restarts = true, true, false, false
	c.shell = shell.New(c.claim, c.p.world.Boot, c)
	c.shell.HasWork = c.p.plan.work
	c.shell.Calls.Has[shell.Won], c.shell.Calls.Has[shell.Lost] = true, true
	c.shell.Start(c.p.now(), nil, c.p.now())
	c.do(c.shell.Begin(c.p.now(), c.p.now()))
}

func (c *candidate) name() string { return c.p.name + "/" + c.key }

// do does what the claim decides: it waits, or the run is over.
func (c *candidate) do(op core.Op, events []core.Event) {
	c.report(events)
	for i := range events {
		c.shell.Take(c.p.now(), &events[i])
	}
	if w := c.p.w; len(events) > 0 && w.script.logs > 0 {
		c.logs = w.Now.Add(w.dice.UpTo(w.script.logs))
		if w.dice.Chance(0.2) {
			w.After(w.dice.UpTo(w.script.logs), func() { c.p.act(c.describe) })
		}
	}
	if op.Kind == core.Finish {
		c.looping = false
		c.returnWhenIdle()
	}
}

// Wake has the loop woken at a time of the process's clock.
func (c *candidate) Wake(at time.Time) {
	c.waker.Stop()
	if at.IsZero() {
		return
	}
	c.waker = c.p.w.At(timeutil.Later(c.p.clock.When(at), c.logs), func() {
		c.p.act(func() {
			switch {
			case c.returning:
				c.returnWhenIdle()
			case c.looping:
				c.do(c.shell.Done(c.p.now(), core.Result{}))
			}
			c.p.goOn()
		})
	})
}

// term is a term of a candidate.
type term struct {
	shell.Term
	c *candidate
}

// NewTerm returns a term that begins.
func (c *candidate) NewTerm(t *core.Term) *shell.Term {
	x := &term{c: c}
	x.Core, x.Driver = t, x
	return &x.Term
}

// Expire leaves the end of the lease to the session.
func (x *term) Expire(time.Duration) {}

// EndContext ends the context of the work.
func (x *term) EndContext() {
	if w := x.c.work; w != nil && w.term == &x.Term && !w.ending {
		w.ending = true
		w.returns.Stop()
		x.c.p.w.After(x.c.lingers(), func() { x.c.p.act(func() { x.c.workReturns(w) }) })
	}
}

// StartWork starts the work of the term.
func (x *term) StartWork() {
	c := x.c
	if c.restarts {
		c.p.w.fail("P3", c.name(), "its work begins again, though it has returned by itself")
	}
	c.work, c.worked = &work{term: &x.Term}, x.Core.Number
	if d := c.p.plan.workReturns; d > 0 && !c.p.w.quiet {
		w := c.work
		w.returns = c.p.w.After(d, func() { c.p.act(func() { c.workReturns(w) }) })
	}
}

// lingers returns how long work goes on after its context has ended.
func (c *candidate) lingers() time.Duration {
	return c.p.plan.lingers[slices.Index(c.p.w.script.keys, c.key)]
}

// work is one call of the function given to Run.
type work struct {
	term    *shell.Term
	ending  bool
	returns *virtual.Timer
}

var errWork = errors.New("work failed")

func (c *candidate) workReturns(x *work) {
	if c.work != x {
		return
	}
	c.work = nil
	led, events := c.shell.WorkReturned(c.p.now(), x.term, core.WorkEnded, errWork)
	if led {
		c.asked, c.restarts = true, true
	}
	c.report(events)
	c.p.goOn()
}

// Show has others see a term, or none.
func (c *candidate) Show(t *shell.Term) { c.term = t }

// StartCalls has callbacks called, soon.
func (c *candidate) StartCalls() { c.p.w.After(0, func() { c.p.act(c.nextCall) }) }

func (c *candidate) nextCall() {
	w := c.p.w
	call, due := c.shell.NextCall(c.p.now())
	if !due {
		c.p.goOn()
		return
	}
	name := [...]string{shell.Won: "OnWon", shell.Lost: "OnLost"}[call.Kind]
	w.note(c.name(), name)
	switch {
	case c.callback != "":
		w.fail("P4", c.name(), name+" begins while "+c.callback+" runs")
	case c.won != (call.Kind == shell.Lost):
		w.fail("P4", c.name(), name+" does not alternate")
	}
	c.callback, c.won = name, true
	w.After(c.p.plan.callbacks, func() {
		c.p.act(func() {
			c.callback, c.won = "", call.Kind == shell.Won
			c.nextCall()
		})
	})
}

// report notes what the claim reports.
func (c *candidate) report(events []core.Event) {
	for i := range events {
		e := &events[i]
		if e.Kind == core.StateChanged {
			c.p.w.journal.Add(judge.Event{At: c.p.w.Now, Name: c.name(), What: stateNames[e.State], A: e.Term.Number, Note: string(e.Reason)})
			if e.State == core.Follower {
				c.p.w.judgeEnd(c, e)
			}
		}
	}
}

var stateNames = [...]string{core.Follower: "leads no longer", core.LeaderElect: "is leader-elect", core.Leader: "leads in term"}

func (c *candidate) returnWhenIdle() {
	c.returning = !c.shell.Discard()
	if !c.returning {
		c.shell.Return(c.p.now())
		c.waker.Stop()
		c.running = false
		c.p.w.note(c.name(), "returned")
		if c.restarts && !c.p.stopping && !c.p.w.closing {
			c.startAgain()
		}
	}
}

// describe sets the metadata of the candidate, beside its loop.
func (c *candidate) describe() {
	if c.running {
		c.report(c.shell.Notice(c.p.now(), core.SetMetadata{Metadata: map[string]string{"at": fmt.Sprint(c.p.w.Now.Unix())}}))
		c.p.goOn()
	}
}

// stop ends the run.
func (c *candidate) stop() {
	if c.running && !c.shell.IsStopping() {
		c.asked = true
		c.report(c.shell.Stop(c.p.now()))
	}
}

// panics ends the loop, and with it the run.
func (c *candidate) panics() {
	if c.looping {
		c.asked, c.looping, c.running, c.panicked = true, false, false, c.p.w.Now
		c.shell.Return(c.p.now())
		c.waker.Stop()
		c.startAgain()
	}
}

// startAgain has the candidate start again soon, once work and callbacks of the last run have returned.
func (c *candidate) startAgain() {
	c.p.w.After(c.p.w.script.ttl/10, func() {
		c.p.act(func() {
			switch {
			case c.running || c.p.stopping || c.p.w.closing:
			case c.busy():
				c.startAgain()
			default:
				c.start()
				c.p.goOn()
			}
		})
	})
}

// end ends the term for a reason of the user's.
func (c *candidate) end(why core.Reason) {
	if c.term != nil {
		c.asked = true
		_, events := c.shell.End(c.p.now(), c.term, why)
		c.report(events)
	}
}

// handOver hands the key over to another process.
func (c *candidate) handOver(to *process) {
	if c.term != nil {
		c.asked = true
		c.shell.Handover(c.p.now(), c.term, record.Successor{Name: to.name, ID: record.QueueID(to.session.ID())}, core.Transferred)
	}
}

// isLeader reports whether the candidate leads, as Election.IsLeader does.
func (c *candidate) isLeader() bool {
	return !c.p.crashed && c.term != nil && c.term.Leads(c.p.now(), c.p.world.Boot)
}

// busy reports whether work or callbacks of a term go on.
func (c *candidate) busy() bool { return c.work != nil || c.won || c.callback != "" }

// String describes the candidate.
func (c *candidate) String() string { return fmt.Sprint(c.name(), ": ", c.claim.Step()) }
