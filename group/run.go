package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/wakeup"
)

// A member while it takes part: one loop, in the goroutine of Start or Run.
//
//	run.go           the loop
//	watcher.go       the watcher, and the connection
//	view.go          what the watcher has delivered
//	presence.go      this member's presence, and who else has its name
//	plan.go          the plan and the presences as records, and how a plan is made from the last one
//	planner.go       when a planner writes the plan
//	announcement.go  how the others learn of the plan, and begin to plan if nobody does
//	lists.go         long lists of keys
//	assignment.go    the elections of the keys that the plan assigns to this member
//	able.go          keys that this member is assigned and cannot lead
//	leave.go         the end

// run is one call of Start or Run, from its beginning to its return. All of it belongs to the goroutine of that call. What a part of it needs is
// declared beside the functions of that part.
type run struct {
	*Group
	view
	watching
	presenting
	planning
	listing
	work Work            // nil for Start
	ctx  context.Context // of the elections, which do not end with the call's context
	wake chan struct{}   // receives after anything happened to an assignment, at least once

	ending   bool  // an election has ended by itself, or this member leaves
	failed   error // of the election that has ended by itself
	warned   bool  // the present trouble was logged
	requests int   // requests about keys that are under way

	next time.Time // when to act next, should nothing happen before
}

func newRun(ctx context.Context, g *Group, work Work) *run {
	r := &run{Group: g, view: view{group: g, lists: map[string][]string{}, self: newPresence(g.name)}, ctx: context.WithoutCancel(ctx), work: work, wake: make(chan struct{}, 1)}
	for _, a := range g.assignments {
		a.ability = ability{}
	}
	r.setKeys()
	return r
}

// waitForBucket reads the bucket's TTL, and waits while the server cannot be reached.
func (r *run) waitForBucket(ctx context.Context) error {
	err := r.bucket.WaitFor(ctx, r.log, func() error {
		info, err := r.bucket.Load(ctx)
		if err != nil {
			return err
		}
		r.ttl = info.TTL
		return info.Validate()
	})
	if errors.Is(err, nats.ErrConnectionClosed) {
		return closedError(err)
	}
	return err
}

// closedError is the error of a run whose connection is closed for good.
func closedError(err error) error {
	return fmt.Errorf("this member cannot take part any more, make a new one on a new connection: %w", err)
}

// loop takes part until ctx ends, an election ends by itself, or this member is replaced.
func (r *run) loop(ctx context.Context) error {
	nc := r.bucket.Conn()
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	r.changes = changes
	if nc.IsClosed() {
		return closedError(nats.ErrConnectionClosed)
	}
	for {
		if err := r.act(ctx); err != nil || r.ending || ctx.Err() != nil {
			return errors.Join(err, r.failed)
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-time.After(time.Until(r.next)):
		case status := <-r.changes:
			if err := r.connectionChanged(status); err != nil {
				return errors.Join(err, r.failed)
			}
		case entry, ok := <-r.updates:
			if err := r.update(entry, ok); err != nil {
				return err
			}
		}
	}
}

// act does all that can be done now. Requests take time: what the watcher delivered meanwhile is taken in before anything else is done, so that this
// member does not act on a plan that is long out of date.
func (r *run) act(ctx context.Context) error {
	r.next = time.Now().Add(r.ttl)
	r.startWatcher(ctx)
	if err := r.writePresence(ctx); err != nil {
		return err
	}
	if err := r.updateAll(); err != nil {
		return err
	}
	r.forget()
	if err := r.agree(ctx); err != nil {
		return err
	}
	if err := r.updateAll(); err != nil {
		return err
	}
	r.setRole()
	r.campaign()
	r.actBy(r.presenceDue)
	if r.watcher == nil || r.polls {
		r.actBy(r.watcherDue)
	}
	if r.changed { // by what was taken in, written or read just now
		r.actBy(time.Now())
	}
	return nil
}

// actBy has the loop act again at a time, or before.
func (r *run) actBy(t time.Time) { r.next = timeutil.Earlier(r.next, t) }

// isDue reports whether a time has come. If not, it has the loop act again by then.
func (r *run) isDue(t time.Time) bool {
	due := !time.Now().Before(t)
	if !due {
		r.actBy(t)
	}
	return due
}

// agree does what is to be done about the plan, as one that plans or follows. The error means that the group has no room for this member.
func (r *run) agree(ctx context.Context) error {
	if r.changed {
		r.changed = false
		r.burst.note()
		r.publish()
	}
	if r.listFor != r.planHash {
		r.writeMissingList(ctx)
	}
	r.planIfDue(ctx)
	r.follow(ctx)
	if _, planned := r.plan.Keys[r.name]; r.plan.Full && !planned && !r.ending {
		return fmt.Errorf("%w: it has %d members: use several groups, or fewer members", ErrFull, len(r.plan.Order))
	}
	return nil
}

// publish makes the view known to Status.
func (r *run) publish() {
	p := &published{plan: r.plan, members: r.plan.Order}
	if r.planner {
		p.members = nil
		for _, m := range r.present() {
			p.members = append(p.members, m.Name)
		}
	}
	r.published.Store(p)
}

// warn logs the first failure in a row as a warning.
func (r *run) warn(what string, err error) {
	level := slog.LevelWarn
	if r.warned {
		level = slog.LevelDebug
	}
	r.warned = true
	r.log.Log(r.ctx, level, what, "error", kv.Describe(err))
}

// request returns a context for one request to the server.
func (r *run) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, timing.Timing{TTL: r.ttl}.RequestTimeout())
}

// signal has wake receive once more, at least.
func (r *run) signal() { wakeup.Send(r.wake) }
