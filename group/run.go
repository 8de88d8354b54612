package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/watch"
)

const (
	// maxTry is the longest time that one request to the server is given.
	maxTry = 2 * time.Second
	// retry is how long a member waits before it tries again what failed, at most.
	retry = time.Second
)

// run is one call of Start or Run, from its beginning to its return. All of it belongs to the goroutine that called.
type run struct {
	*Group
	view
	ctx     context.Context // that of the elections, which do not end with the call's
	work    Work            // nil for Start
	wake    chan struct{}   // receives after anything happened to a seat, at least once
	self    presence
	asking  int // requests to hand over that are under way
	watcher jetstream.KeyWatcher

	revision uint64    // of the presence that was written last; 0 for none
	beat     time.Time // when to write it next
	rewatch  time.Time // when to make a watcher, while there is none
	differs  time.Time // when the plan was found not to fit any more; zero while it does
	wanted   plan      // the one that would, or the same
	planNext time.Time // no plan before this, since the last could not be written
	done     bool      // whether some election has ended by itself, with the error failed
	failed   error
	warned   bool // whether the trouble there is was logged
}

func newRun(ctx context.Context, g *Group, work Work) *run {
	r := &run{Group: g, ctx: context.WithoutCancel(ctx), work: work, wake: make(chan struct{}, 1), self: g.presence(time.Now())}
	r.view.group = g
	return r
}

// survey reads the bucket's TTL, and waits while the server cannot be reached. All else about the bucket is found by the
// elections.
func (r *run) survey(ctx context.Context) error {
	for {
		call, cancel := context.WithTimeout(ctx, maxTry)
		status, err := r.bucket.Status(call)
		cancel()
		switch {
		case err == nil && (status.TTL() < time.Second || status.TTL() > time.Hour):
			return fmt.Errorf("%w: %q has a TTL of %v: give it one between 1 s and 1 h", election.ErrBucketUnsuitable, r.bucket.Bucket(), status.TTL())
		case err == nil:
			r.ttl = status.TTL()
			return nil
		case errors.Is(err, nats.ErrConnectionClosed):
			return closedError(err)
		case errors.Is(err, jetstream.ErrBucketNotFound):
			return fmt.Errorf("%w: %q cannot be used: %w", election.ErrBucketUnsuitable, r.bucket.Bucket(), err)
		}
		r.trouble("Bucket cannot be reached, waiting for it", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry / 4):
		}
	}
}

// closedError is the error of a run whose connection is closed for good.
func closedError(err error) error {
	return fmt.Errorf("this member cannot take part any more, make a new one on a new connection: %w", err)
}

// loop takes part until ctx ends, an election ends by itself, or this member is replaced.
func (r *run) loop(ctx context.Context) error {
	changes := r.js.Conn().StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer r.js.Conn().RemoveStatusListener(changes)
	defer func() { r.close() }()
	if r.js.Conn().IsClosed() {
		return closedError(nats.ErrConnectionClosed)
	}
	r.begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, err := r.tend(ctx)
		if err != nil || r.done || ctx.Err() != nil {
			return errors.Join(err, r.failed)
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		case status := <-changes: // the watcher may be blind from now on, without a sign
			if status == nats.CLOSED {
				return errors.Join(closedError(nats.ErrConnectionClosed), r.failed)
			}
			r.close()
			r.beat = time.Now()
		case entry, ok := <-r.updates():
			if err := r.take(entry, ok); err != nil {
				return err
			}
		}
	}
}

// tend does all that can be done now, and returns when there may be more to do. Requests take their time: what was told
// meanwhile is taken in before anything else is done, lest this member act on a plan that is long out of date.
func (r *run) tend(ctx context.Context) (next time.Time, err error) {
	next = r.watch(ctx)
	beat, err := r.show(ctx)
	if err != nil {
		return next, err
	}
	if err := r.catchUp(); err != nil {
		return next, err
	}
	next = earlier(earlier(next, beat), r.forget())
	if r.news {
		r.news = false
		r.compare()
		r.tell()
	}
	next = earlier(next, r.planning(ctx))
	if err := r.catchUp(); err != nil {
		return next, err
	}
	if next = earlier(next, r.seating()); r.news { // of a plan that was written or read just now
		next = time.Now()
	}
	return next, nil
}

// tell makes the view known to Status.
func (r *run) tell() {
	v := &seen{plan: r.plan}
	for _, m := range r.there() {
		v.members = append(v.members, m.Name)
	}
	r.seen.Store(v)
}

// updates returns what the watcher tells; nil while there is none.
func (r *run) updates() <-chan jetstream.KeyValueEntry {
	if r.watcher == nil {
		return nil
	}
	return r.watcher.Updates()
}

// watch makes a watcher if there is none, and returns when to try again.
func (r *run) watch(ctx context.Context) time.Time {
	far := time.Now().Add(r.ttl)
	if r.watcher != nil {
		return far
	}
	if wait := r.rewatch; time.Now().Before(wait) {
		return wait
	}
	r.begin()
	w, err := watch.Start(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) {
		return r.bucket.WatchFiltered(ctx, []string{r.memberKey(">"), r.planKey()})
	})
	if err != nil {
		r.trouble("Members cannot be watched", err)
		r.rewatch = time.Now().Add(retry)
		return r.rewatch
	}
	r.watcher = w
	return far
}

// close ends the watcher.
func (r *run) close() {
	if r.watcher != nil {
		watch.Stop(r.watcher)
		r.watcher = nil
	}
}

// catchUp takes in all that the watcher has told by now.
func (r *run) catchUp() error {
	for {
		select {
		case entry, ok := <-r.updates():
			if err := r.take(entry, ok); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// take takes in what the watcher told; nil is the end of what stood when it was made. Not ok is the end of the watcher.
func (r *run) take(entry jetstream.KeyValueEntry, ok bool) error {
	switch {
	case !ok:
		r.close()
		r.rewatch = time.Now().Add(retry)
		return nil
	case entry == nil:
		r.end()
		return nil
	}
	r.see(entry)
	if m := r.members[r.name]; r.revision > 0 && m.revision > r.revision && m.Instance != r.self.Instance {
		return fmt.Errorf("%w: %q, on host %q as process %d", ErrReplaced, r.name, m.Host, m.PID)
	}
	return nil
}

// trouble logs the first failure in a row as a warning.
func (r *run) trouble(what string, err error) {
	level := slog.LevelWarn
	if r.warned {
		level = slog.LevelDebug
	}
	r.warned = true
	r.log.Log(r.ctx, level, what, "error", err)
}

// try returns a context for one request to the server.
func (r *run) try(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(r.ttl/4, maxTry))
}

// signal has a channel that holds one receive at least once more.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
