package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// retryDelay is how long a member waits at most before it tries again what failed.
	retryDelay = time.Second
	// maxFailedWatchers is how many watchers in a row may fail before a member reads instead.
	maxFailedWatchers = 3
	// rewatchDelay is after how long a member that reads tries again to start a watcher, at least.
	rewatchDelay = 30 * time.Second
	// pollsPerTTL is how many times per TTL a member reads that has no watcher, at least; maxPollInterval is the longest time from one read to the next of
	// one that does not plan.
	pollsPerTTL     = 8
	maxPollInterval = time.Second
)

// retries says when to try again what has failed: each time later, up to a limit. The zero value says at once.
type retries struct {
	due      time.Time
	failures int
}

// failed has the next try wait for the shortest time after the first failure, and twice as long after each further one, up to the longest.
func (t *retries) failed(shortest, longest time.Duration) {
	t.due = retryTime(min(shortest<<min(t.failures, 10), longest))
	t.failures++
}

// retryTime returns when to try again a request that failed: within the given time, and after half of it. It is random: where a server is
// overloaded or was restarted, the requests of hundreds of members fail together, and would come again together.
func retryTime(within time.Duration) time.Time {
	return time.Now().Add(within - timeutil.Random(within/2))
}

// A member while it takes part: one loop, in the goroutine of Start or Run.
//
//	run.go, view.go  the loop, its watcher, and what the watcher has delivered
//	presence.go      this member's presence, and who else has its name
//	plan.go          the plan and the presences as records, and how a plan is made from the last one
//	planner.go       when a planner writes the plan
//	announcement.go  how the others learn of the plan, and begin to plan if nobody does
//	lists.go         long lists of keys
//	assignment.go    the elections of the keys that the plan assigns to this member
//	able.go          keys that this member is assigned and cannot lead
//	leave.go         the end

// run is one call of Start or Run, from its beginning to its return. All of it belongs to the goroutine of that call.
type run struct {
	*Group
	view
	work Work            // nil for Start
	ctx  context.Context // of the elections, which do not end with the call's context
	wake chan struct{}   // receives after anything happened to an assignment, at least once

	// The end of the run.
	ending bool  // an election has ended by itself, or this member leaves
	failed error // of the election that has ended by itself
	warned bool  // the present trouble was logged

	// The watcher, and the connection.
	watcher    jetstream.KeyWatcher           // nil while there is none
	updates    <-chan jetstream.KeyValueEntry // of the watcher; nil while there is none
	watcherDue time.Time                      // when to start a watcher, while there is none, or one that reads
	polls      bool                           // the watcher reads: it takes no consumer
	changes    <-chan nats.Status             // of the connection

	failedWatchers int // watchers in a row that could not be started, or delivered nothing

	// The presence of this member.
	own              ownPresences // by which a copy of this process is recognised
	presenceRevision uint64       // of the presence that was written last; 0 for none
	presenceSent     time.Time    // when the presence was last written, or a write was tried
	presenceSeen     time.Time    // when the watcher in use last delivered it
	presenceDue      time.Time    // when to write it next
	unanswered       bool         // the last write of it had no answer
	listFor          string       // the hash of the plan for which the list of this member's keys was written

	// The plan, as one that plans or claims to.
	burst    burst     // of members that come and go
	nextPlan plan      // the plan that would fit; the one in force while that does
	outdated time.Time // since when the plan in force does not fit; zero while it does
	retryAt  time.Time // no claim, plan or announcement is written before this, because the last one failed

	// The keys that this member lists.
	relisted  bool   // the keys that it lists have changed since the presence was last made
	orphansOf string // the hash of the plan of which it was last found out whether it assigns keys that were given up to nobody

	requests int // requests about keys that are under way
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
		next, err := r.act(ctx)
		if err != nil || r.ending || ctx.Err() != nil {
			return errors.Join(err, r.failed)
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-time.After(time.Until(next)):
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

// act does all that can be done now, and returns when there may be more to do. Requests take time: what the watcher delivered meanwhile is
// taken in before anything else is done, so that this member does not act on a plan that is long out of date.
func (r *run) act(ctx context.Context) (next time.Time, err error) {
	next = r.startWatcher(ctx)
	due, err := r.writePresence(ctx)
	if err == nil {
		err = r.updateAll()
	}
	if err != nil {
		return next, err
	}
	next = timeutil.Earlier(timeutil.Earlier(next, due), r.forget())
	planDue, err := r.agree(ctx)
	if err == nil {
		err = r.updateAll()
	}
	if err != nil {
		return next, err
	}
	r.setRole()
	if r.watcher == nil && !time.Now().Before(r.watcherDue) || r.changed { // by what was taken in, written or read just now
		planDue = time.Now()
	}
	return timeutil.Earlier(timeutil.Earlier(next, planDue), r.campaign()), nil
}

// agree does what is to be done about the plan, as one that plans or follows, and returns when there may be more to do. The error means that
// the group has no room for this member.
func (r *run) agree(ctx context.Context) (next time.Time, err error) {
	if r.changed {
		r.changed = false
		r.burst.note()
		r.publish()
	}
	if r.listMissing() && r.listFor != r.planHash {
		r.listFor = r.planHash
		r.writeList(ctx, r.self.List, r.lists[r.self.List])
	}
	next = timeutil.Earlier(r.planIfDue(ctx), r.follow(ctx))
	if _, planned := r.plan.Keys[r.name]; r.plan.Full && !planned && !r.ending {
		return next, fmt.Errorf("%w: it has %d members: use several groups, or fewer members", ErrFull, len(r.plan.Order))
	}
	return next, nil
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

// startWatcher starts a watcher if there is none, and returns when to try again. Where the server refuses it a consumer, or several in a row have
// delivered nothing, the member reads instead, and tries again once in a while.
func (r *run) startWatcher(ctx context.Context) time.Time {
	if r.watcher != nil && !r.polls {
		return time.Now().Add(r.ttl)
	}
	if time.Now().Before(r.watcherDue) {
		return r.watcherDue
	}
	if r.failedWatchers < maxFailedWatchers || r.polls {
		w, err := r.bucket.StartWatcher(r.ctx, r.memberKey(">"), func(watching context.Context) (jetstream.KeyWatcher, error) {
			watching, cancel := context.WithCancel(watching)
			defer context.AfterFunc(ctx, cancel)() // once started, the watcher outlasts ctx
			return r.bucket.WatchFiltered(watching, r.watched())
		})
		if err == nil {
			r.useWatcher(w)
			return time.Now().Add(r.ttl)
		}
		switch kv.Failure(err) {
		case kv.FailedOtherwise: // it is not permitted, or there are too many consumers
			r.failedWatchers = maxFailedWatchers
		case kv.FailedTimeout: // some servers refuse without a sign
			r.failedWatchers++
		}
		if r.failedWatchers < maxFailedWatchers {
			r.warn("Members cannot be watched", err)
			r.watcherDue = retryTime(retryDelay)
			return r.watcherDue
		}
		if !r.polls {
			r.log.Warn("Members cannot be watched, reading them instead", "error", kv.Describe(err))
		}
	}
	if !r.polls {
		interval := min(r.ttl/pollsPerTTL, maxPollInterval)
		if r.planner { // which reads the presences of all
			interval = r.ttl / pollsPerTTL
		}
		r.useWatcher(r.bucket.Poll(r.ctx, r.watched(), interval))
		r.polls = true
	}
	r.watcherDue = retryTime(max(rewatchDelay, 2*r.ttl))
	return r.watcherDue
}

// useWatcher begins with another watcher.
func (r *run) useWatcher(w jetstream.KeyWatcher) {
	r.stopWatcher()
	r.begin()
	r.watcher, r.updates = w, w.Updates()
}

// watched returns the keys that this member watches.
func (r *run) watched() []string {
	if r.planner {
		return []string{r.memberKey(">"), r.listKey(">"), r.planKey(), r.announcementKey()}
	}
	return []string{r.memberKey(r.name), r.announcementKey()}
}

func (r *run) stopWatcher() {
	if r.watcher != nil {
		kv.StopWatcher(r.watcher)
		r.watcher, r.updates, r.polls = nil, nil, false
	}
}

// connectionChanged begins anew with a connection that was made again, or delivers again: the watcher may deliver nothing from now on, without
// a sign. The error means that the connection is closed for good.
func (r *run) connectionChanged(status nats.Status) error {
	if status == nats.CLOSED {
		return closedError(nats.ErrConnectionClosed)
	}
	r.stopWatcher()
	r.failedWatchers = 0
	r.since = time.Now()
	r.begin() // no plan is made from what was known before
	r.presenceSeen, r.watcherDue, r.presenceDue = time.Time{}, time.Time{}, time.Now()
	for _, a := range r.assignments {
		a.unled = time.Now()
		if a.givenUp {
			a.tryAgain = time.Now()
		} else {
			r.putOff(a)
		}
	}
	return nil
}

// updateAll takes in all that has become of the connection and all that the watcher has delivered by now.
func (r *run) updateAll() error {
	for {
		select {
		case status := <-r.changes:
			if err := r.connectionChanged(status); err != nil {
				return err
			}
		case entry, ok := <-r.updates:
			if err := r.update(entry, ok); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// update takes in what the watcher delivers: nil comes after all that was stored when it was started, and not ok is its end. The error
// means that another member has the name.
func (r *run) update(entry jetstream.KeyValueEntry, ok bool) error {
	switch {
	case !ok:
		r.stopWatcher()
		r.watcherDue = retryTime(retryDelay)
		return nil
	case entry == nil:
		r.completed()
		return nil
	}
	r.receive(entry)
	if entry.Key() != r.memberKey(r.name) || r.presenceRevision == 0 || r.ending {
		return nil
	}
	if entry.Revision() > r.presenceRevision {
		if err := r.overwritten(entry); err != nil {
			return err
		}
	}
	if m := r.members[r.name]; m.Instance == r.self.Instance && m.seen.After(r.presenceSeen) {
		before := r.presenceSeen
		r.presenceSeen = m.seen
		if !r.polls {
			r.failedWatchers = 0
		}
		if m.Attempt == r.self.Attempt && r.complete {
			r.clock = reference{entry.Created(), r.presenceSent}
		}
		if before.Before(r.forgot) { // the plan may have waited for it
			r.changed = true
		}
		if !before.IsZero() && m.seen.Sub(before) > r.ttl/2 { // presences in between did not pass, and neither did those of others
			return r.connectionChanged(nats.CONNECTED)
		}
	}
	return nil
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
