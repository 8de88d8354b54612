package group

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
)

const (
	// maxFailedWatchers is how many watchers in a row may fail before a member reads instead.
	maxFailedWatchers = 3
	// rewatchDelay is after how long a member that reads tries again to start a watcher, at least.
	rewatchDelay = 30 * time.Second
	// pollsPerTTL is how many times per TTL a member reads that has no watcher, at least; maxPollInterval is the longest time from one read to the next of
	// one that does not plan.
	pollsPerTTL     = 8
	maxPollInterval = time.Second
)

// watching is the watcher of a member, and its connection.
type watching struct {
	watcher        jetstream.KeyWatcher           // nil while there is none
	updates        <-chan jetstream.KeyValueEntry // of the watcher; nil while there is none
	watcherDue     time.Time                      // when to start a watcher, while there is none, or one that reads
	polls          bool                           // the watcher reads: it takes no consumer
	failedWatchers int                            // watchers in a row that could not be started, or delivered nothing
	changes        <-chan nats.Status             // of the connection
}

// startWatcher starts a watcher if there is none and it is time for one. Where the server refuses it a consumer, or several in a row have
// delivered nothing, the member reads instead, and tries again once in a while.
func (r *run) startWatcher(ctx context.Context) {
	if r.watcher != nil && !r.polls || time.Now().Before(r.watcherDue) {
		return
	}
	if r.failedWatchers < maxFailedWatchers || r.polls {
		w, err := r.bucket.StartWatcher(r.ctx, r.memberKey(">"), kv.EndStart(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) {
			return r.bucket.WatchFiltered(ctx, r.watched())
		}))
		if err == nil {
			r.useWatcher(w)
			return
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
			return
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
	return r.presenceDelivered(entry)
}
