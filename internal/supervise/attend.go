//go:build linux || darwin

package supervise

import (
	"context"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/terminal"
)

const (
	attendEvery   = 100 * time.Millisecond // how often the clocks are read, as a suspended machine stops timers
	remainsEvery  = 2 * time.Millisecond   // how often a group is looked for whose program has ended
	killPatience  = 5 * time.Second        // for a group that was killed
	longestFuture = time.Duration(math.MaxInt64)
)

// attendance is the watch over one program, until all of its group is gone.
type attendance struct {
	*runner
	*program
	term   *election.Term // nil if no lease limits the program
	killed time.Time      // when the group was killed; zero if it was not
	late   bool           // whether the guardian had to kill the group in our place
	raised bool           // whether INT was followed by TERM
}

// attend returns when the program and its group are gone. It has them end when ctx does, and before the term's lease is
// over, unless there is no term. It says whether the program ended because of that, rather than by itself.
func (r *runner) attend(ctx context.Context, p *program, t *election.Term) (lost bool) {
	a := &attendance{runner: r, program: p, term: t}
	for a.step(ctx) {
	}
	r.guardian.tell(order{})
	r.current.Store(nil)
	r.terminal.takeBack(p)
	signal, _ := p.toldAt()
	r.log.Info("Program ended", "pid", p.pid, "code", p.code(), "after", terminal.Human(time.Since(p.started)))
	return signal != 0 || a.late
}

// orderFor returns what the guardian is to do about a program that was started in a term, or in none.
func (r *runner) orderFor(pid int, t *election.Term) order {
	if t == nil {
		return order{Group: pid}
	}
	_, death := r.grants()
	return orderAt(t.Deadline().Add(-death/2), order{Group: pid, Target: -pid, Signal: unix.SIGKILL})
}

// grants returns the grace, and how long before the lease is over the group is killed.
func (r *runner) grants() (grace, death time.Duration) {
	if t := r.times.Load(); t != nil {
		return t.grace, t.death
	}
	if r.GraceSet {
		return r.Grace, 0
	}
	return longestGrace, 0
}

// step does what is to be done now and waits for more. It returns false when nothing is left of the group.
func (a *attendance) step(ctx context.Context) bool {
	grace, death := a.grants()
	lease := longestFuture
	if a.term != nil {
		end := a.term.Deadline()
		lease = left(end)
		a.late = a.guardian.tell(a.orderFor(a.pid, a.term)) || a.late
	}
	over := a.over()
	if over && !a.remains() {
		return false
	}
	switch told, _ := a.toldAt(); {
	case told != 0:
	case a.late: // while this process was stopped
		a.kill("its guardian had to")
	case over:
		a.kill("its program has ended") // without a word: nobody is left to wind up for
	case ctx.Err() != nil:
		a.tell(unix.SIGTERM)
	case lease <= grace+death:
		a.log.Warn("Lease is not renewed, terminating the program before the lease is over", "left", terminal.Human(lease))
		a.tell(unix.SIGTERM)
	}
	told, when := a.toldAt()
	if told != 0 {
		a.press(told, grace-time.Since(when), grace/2, lease-death)
	}
	if !a.killed.IsZero() && over && time.Since(a.killed) > killPatience {
		a.log.Warn("Processes of the group do not end although they were killed, they are left behind", "group", a.pid)
		a.forget()
		return false
	}
	a.await(ctx, min(grace-time.Since(when), lease-death), lease-grace-death)
	return true
}

// press sees to it that a group that was told to end does, given what is left of its grace and until the last moment.
func (a *attendance) press(told syscall.Signal, grace, half, last time.Duration) {
	switch {
	case grace <= 0:
		a.kill("its grace is over")
	case last <= 0:
		a.kill("its lease is over")
	case told == unix.SIGINT && grace <= half && !a.raised: // started by a script, it may ignore INT
		a.raised = true
		a.signalGroup(unix.SIGTERM)
	}
}

// kill kills what is left of the group.
func (a *attendance) kill(why string) {
	if a.killed.IsZero() {
		a.killed = time.Now()
		a.log.Debug("Group is killed", "group", a.pid, "reason", why)
	}
	a.signalGroup(unix.SIGKILL)
}

// await waits until there may be something to be done: within the time until the group is to be killed, if it was told to
// end, else until it is to be told.
func (a *attendance) await(ctx context.Context, kill, tell time.Duration) {
	ended, done, wait := a.ended, ctx.Done(), min(attendEvery, tell)
	if told, _ := a.toldAt(); told != 0 {
		done, wait = nil, min(attendEvery, kill)
	}
	if a.over() {
		ended, wait = nil, remainsEvery
	}
	timer := time.NewTimer(max(wait, remainsEvery))
	defer timer.Stop()
	select {
	case <-ended:
	case <-done:
	case <-a.news:
	case <-timer.C:
	}
}
