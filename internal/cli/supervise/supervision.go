//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	checkInterval     = 100 * time.Millisecond // how often this process reads the clocks: timers do not advance while a machine is suspended
	groupPollInterval = 2 * time.Millisecond   // how often this process looks for the group of a program that has exited
	killTimeout       = 5 * time.Second        // after which a group that was killed but does not end is left behind
	maxDuration       = time.Duration(math.MaxInt64)
	// releaseAfterKill is how long after KILL the key may still be released. It is clearly shorter than killTimeout: KILL takes effect long
	// before, and if it does not, the key must expire, rather than be released when the group is left behind.
	releaseAfterKill = killTimeout / 2
)

// supervision is the supervision of one program until its whole group is gone.
type supervision struct {
	*runner
	program       *program
	term          *election.Term // nil if no lease limits the program
	killed        time.Time      // when this process killed the group; zero if it has not
	expiring      bool           // whether this process terminated the program because the lease was not renewed
	guardianActed bool           // whether the order to kill the group was due before this process could replace it
	termSent      bool           // whether TERM has followed INT
	stopped       time.Time      // when the program was first seen stopped; zero while it is not
}

// supervise returns when the program and its group are gone. It terminates them when ctx ends and, unless t is nil, before the
// lease of t ends. It reports whether the program was terminated, rather than exited on its own.
func (r *runner) supervise(ctx context.Context, p *program, t *election.Term) (terminated bool) {
	s := &supervision{runner: r, program: p, term: t}
	for s.tick(ctx) {
	}
	if wasDue, _ := r.guardian.setOrder(order{}); wasDue { // as of a lease that was lost just now: then the guardian was quicker than this process
		s.guardianActed = true
	}
	if t != nil && (s.expiring || s.guardianActed) {
		r.notRenewed.Store(t.Number)
	}
	r.witness.programEnded()
	r.current.Store(nil)
	r.terminal.reclaim(p)
	signal, _ := p.termination()
	r.log.Info("Program ended", "pid", p.pid, "code", p.exitCode(), "after", terminal.FormatDuration(time.Since(p.started)))
	return signal != 0 || s.guardianActed
}

// guardianOrder returns the guardian's order for a program that runs in a term; t is nil if it runs in none.
func (r *runner) guardianOrder(pid int, t *election.Term) order {
	if t == nil {
		return order{Group: pid}
	}
	_, killTime := r.graceAndKillTime()
	return orderAt(t.Deadline().Add(-killTime/2), order{Group: pid, Target: -pid, Signal: unix.SIGKILL, Slack: killTime / 2})
}

// divided returns how leases are divided, by the present TTL of the bucket; nil until the bucket is known. A grace that the TTL does not allow any more
// is cut.
func (r *runner) divided() *leaseTimes {
	t, e := r.times.Load(), r.election.Load()
	if t == nil || e == nil {
		return t
	}
	s := e.Status()
	switch {
	case s.TTL == 0, s.TTL == t.ttl && s.CampaignInterval == t.interval:
		return t
	case s.TTL > t.ttl && 0 < s.LeaseRemaining && s.LeaseRemaining <= t.ttl-t.margin: // the next renewal earns a longer lease
		return t
	}
	next, maxGrace := r.divide(s.TTL, s.CampaignInterval)
	level := slog.LevelInfo
	if next.grace > maxGrace {
		next.grace, level = maxGrace, slog.LevelWarn
	}
	if r.times.CompareAndSwap(t, &next) {
		r.log.Log(context.Background(), level, "Lease is divided by the bucket's new TTL", "ttl", next.ttl, "interval", next.interval, "grace", next.grace, "kill_time", next.killTime)
	}
	return &next
}

// graceAndKillTime returns the two times that end each lease. They are provisional until the bucket is known. A caller that compares them with a deadline
// reads the deadline before: if the TTL is shortened in between, the deadline is not yet cut, rather than the grace still long.
func (r *runner) graceAndKillTime() (grace, killTime time.Duration) {
	if t := r.divided(); t != nil {
		return t.grace, t.killTime
	}
	if r.GraceSet {
		return r.Grace, 0
	}
	return maxDefaultGrace, 0
}

// tick updates the guardian's order, terminates or kills the group if it is time to, and waits for the next event. It returns
// false when the group is gone.
func (s *supervision) tick(ctx context.Context) bool {
	p := s.program
	if reason := lossOf(ctx); reason != "" && !p.hasExited() { // before the guardian gets its order, which is due then, and does the same
		p.terminate(unix.SIGTERM)
		s.kill("leadership was lost: " + string(reason))
	}
	lease := maxDuration // time until the lease ends
	if s.term != nil {
		end := s.term.Deadline()
		lease = timeutil.Remaining(end)
		if wasDue, ago := s.guardian.setOrder(s.guardianOrder(p.pid, s.term)); wasDue && !s.guardianActed && s.killed.IsZero() {
			s.guardianActed = true
			s.log.Warn("This process was stopped, and its guardian killed the program meanwhile", "group", p.pid, "ago", terminal.FormatDuration(ago))
		}
	}
	grace, killTime := s.graceAndKillTime()
	exited := p.hasExited()
	if exited && p.groupGone() {
		return false
	}
	stoppedTooLong := s.followStops()
	switch signal, _ := p.termination(); {
	case signal != 0:
	case s.guardianActed:
		s.kill("the guardian's order was due")
	case exited:
		s.kill("the program exited") // without TERM first: the program that these processes worked for is gone
	case ctx.Err() != nil:
		if s.isOrderlyStop(ctx) {
			s.log.Info("Terminating the program", "signal", unix.SignalName(unix.SIGTERM), "kill-at", s.killAt(p))
		}
		p.terminate(unix.SIGTERM)
	case stoppedTooLong:
		s.log.Warn("Program is still stopped, giving up leadership", "pid", p.pid, "for", terminal.FormatDuration(time.Since(s.stopped)))
		p.terminate(unix.SIGTERM)
	case lease <= grace+killTime:
		s.log.Warn("Lease is not renewed, terminating the program before the lease ends", "left", terminal.FormatDuration(lease))
		s.expiring = true
		p.terminate(unix.SIGTERM)
	}
	signal, terminated := p.termination()
	if signal != 0 {
		over := "the grace is over"
		if s.isOrderlyStop(ctx) {
			grace, over = s.stopTimeout(), "the stop timeout is over"
		}
		s.escalate(signal, grace-time.Since(terminated), grace/2, lease-killTime, over)
	}
	if !s.killed.IsZero() && exited && time.Since(s.killed) > killTimeout {
		s.log.Warn("Processes of the group did not end after KILL and are left behind", "group", p.pid)
		p.abandonGroup()
		s.witness.close() // it waits for one group, and not for what is left of this one when the next program runs
		return false
	}
	s.wait(ctx, min(grace-time.Since(terminated), lease-killTime), lease-grace-killTime)
	return true
}

// followStops notices when the program is stopped: by SIGSTOP, by Ctrl-Z, or because it reads the terminal from the background. On a
// terminal that the program has, this process stops too, as a shell expects of a job, until the shell continues it. Otherwise followStops
// reports whether the program has been stopped for longer than a TTL: a leader that does nothing should not lead.
func (s *supervision) followStops() (tooLong bool) {
	p, times := s.program, s.divided()
	if p.hasExited() || !isStopped(p.pid) {
		s.stopped = time.Time{}
		if p.hasTerminal && s.terminal.isForeground() {
			s.terminal.lend(p) // the shell has brought this process into the foreground again
		}
		return false
	}
	if p.hasTerminal && s.terminal.ownsJob(p) {
		s.log.Info("Program is stopped, stopping with it", "pid", p.pid)
		s.terminal.suspend(p)
		return false
	}
	if s.stopped.IsZero() {
		s.stopped = time.Now()
		s.log.Warn("Program is stopped: continue it, or another host will lead. A program in the background must not read the terminal", "pid", p.pid)
	}
	return s.term != nil && times != nil && time.Since(s.stopped) > times.ttl
}

// lossOf returns the reason with which leadership was lost at once, as when somebody deletes the key: no lease is left, and another host may lead.
// It is empty while leadership lasts, and if the key or the lease is still there when leadership ends.
func lossOf(ctx context.Context) election.Reason {
	ended, ok := errors.AsType[*election.TermEndedError](context.Cause(ctx))
	if !ok || !slices.Contains(lossReasons, ended.Reason) {
		return ""
	}
	return ended.Reason
}

// lossReasons are the reasons with which a term of this candidate ends because it does not hold the key any more.
var lossReasons = []election.Reason{
	election.ReasonDeleted, election.ReasonOverwritten, election.ReasonBucketReplaced, election.ReasonCloned, election.ReasonRewound,
}

// isOrderlyStop reports whether leadership ends although this candidate keeps the key: after a signal to this process, or because an
// operator asked for a handover. Then the library renews the lease until the program has exited. If it cannot, the lease limits the grace.
func (s *supervision) isOrderlyStop(ctx context.Context) bool {
	if s.interrupted.Load() {
		return true
	}
	ended, ok := errors.AsType[*election.TermEndedError](context.Cause(ctx))
	return ok && slices.Contains(orderlyReasons, ended.Reason)
}

// killAt returns when a program that does not exit in an orderly stop is killed, unless the lease cannot be renewed and ends before.
func (r *runner) killAt(p *program) time.Time {
	signal, terminated := p.termination()
	if signal == 0 {
		terminated = time.Now()
	}
	return terminated.Add(r.stopTimeout()).UTC()
}

// orderlyReasons are the reasons with which a term of this candidate ends while it still holds the key.
var orderlyReasons = []election.Reason{election.ReasonStopped, election.ReasonResigned, election.ReasonTransferred, election.ReasonRelinquished}

// escalate sends a stronger signal to a group that does not end after the given signal, when too little is left of the grace or
// of the time until the group must be killed. over says what is over when nothing is left of the grace.
func (s *supervision) escalate(signal syscall.Signal, graceLeft, halfGrace, untilKill time.Duration, over string) {
	switch {
	case graceLeft <= 0:
		s.kill(over)
	case untilKill <= 0:
		s.kill("the lease is about to end")
	case signal == unix.SIGINT && graceLeft <= halfGrace && !s.termSent: // a program that a script started may ignore INT
		s.termSent = true
		s.program.signalGroup(unix.SIGTERM)
	}
}

// kill kills every process of the group.
func (s *supervision) kill(cause string) {
	if s.killed.IsZero() {
		s.killed = time.Now()
		s.log.Warn("Killing the process group", "group", s.program.pid, "because", cause)
	}
	s.program.signalGroup(unix.SIGKILL)
}

// wait waits until the next tick may have something to do, at most untilKill if the program was asked to exit, and at most
// untilTerm otherwise.
func (s *supervision) wait(ctx context.Context, untilKill, untilTerm time.Duration) {
	exited, done, wait := s.program.exited, ctx.Done(), min(checkInterval, untilTerm)
	if signal, _ := s.program.termination(); signal != 0 {
		done, wait = nil, min(checkInterval, untilKill)
	}
	if s.program.hasExited() {
		exited, wait = nil, groupPollInterval
	}
	timer := time.NewTimer(max(wait, groupPollInterval))
	defer timer.Stop()
	select {
	case <-exited:
	case <-done:
	case <-s.program.onTermination:
	case <-timer.C:
	}
}
