package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// readyTimeout is how long the first campaign waits for a source of notifications.
	readyTimeout = 100 * time.Millisecond
	// readyAnswers is for how many answers of the server it waits in any case: a source takes two of them, and servers hesitate.
	readyAnswers = 4
	// maxReadyTimeout is how long it waits at most.
	maxReadyTimeout = time.Second
)

// Config describes the candidate that listens.
type Config struct {
	Key, Name, Instance string
	Priority            int
	Order               Order
	TTL, Spread         time.Duration   // see settings.Timing; SetTiming changes them
	Wake                chan<- struct{} // of capacity one; receives when the time of the next read or campaign may have changed
	Closed              func()          // called when the connection was closed for good
	Log                 *slog.Logger
}

// Listener is what one candidate knows of its key, by notifications and by reading, and when it is to read the key again.
type Listener struct {
	Config
	notifier  *Notifier
	beginning []byte // of every record that the candidate writes: a leader knows its own renewals by it without parsing them

	mu      sync.Mutex
	changed wakeup.Signal
	last    occurred    // the latest notification from the source in use
	renewal uint64      // the form of the renewals by the known holder; 0 if none was parsed, or nobody is known to hold the key
	readAt  time.Time   // when to read the key; zero for no reason to
	waker   *time.Timer // wakes the candidate then; nil if it never had to wait
	hint    *hint       // nil if there is none
	next    time.Time   // no read on account of a hint before this, once too many were wrong
	retry   time.Time   // no read on account of a hint before this, because the last read failed

	wrong    int32 // hints in a row that proved wrong
	failures int32 // reads in a row that failed

	delivered uint64    // the revision that the source reported last, or that was read first from the source in use; 0 if there is none
	awaited   uint64    // a revision that was written or read, and that the source has not reported; 0 if there is none
	since     time.Time // when that was
	overdue   bool      // the source was reported as stalled, and has not reported it yet

	view
	roster roster
}

// SetTiming is called when the bucket's TTL has changed, and with it the spread.
func (l *Listener) SetTiming(ttl, spread time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.TTL, l.Spread = ttl, spread
	l.silence = min(l.silence, spread)
}

// NextChange returns a channel that is closed at the next notification.
func (l *Listener) NextChange() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed.Wait()
}

// Source returns the source in use; None while the source in use is stalled.
func (l *Listener) Source() string {
	if l.notifier.lost.Load() {
		return None
	}
	return l.notifier.inUse()
}

// crowd is how many keys of a bucket make a crowd.
const crowd = 64

// InCrowd reports whether many elections of this process share the bucket.
func (l *Listener) InCrowd() bool {
	n := l.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.listeners) >= crowd
}

// ConnectedAt returns when the connection was last made again; zero if it was not. What was known before may be outdated.
func (l *Listener) ConnectedAt() time.Time { return *l.notifier.connected.Load() }

// WaitReady waits a moment for the first source, so that nothing is missed that happens after the key is read. answer is how long the
// server took for its last answer.
func (l *Listener) WaitReady(ctx context.Context, answer time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(max(readyTimeout, readyAnswers*answer), maxReadyTimeout))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-l.notifier.ready:
	}
}

// InBucket reports whether the notifier takes the bucket for the one that was created at the given time.
func (l *Listener) InBucket(created time.Time) bool {
	return l.notifier.created.Load().Equal(created)
}

// Remake has the notifier ask about the bucket and start its source anew.
func (l *Listener) Remake() { wakeup.Send(l.notifier.remake) }

// sourceChanged is called when a source was started, or may have missed something: the key is read within the given time.
func (l *Listener) sourceChanged(within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered, l.awaited, l.overdue = 0, 0, false
	l.wrong, l.next, l.failures, l.retry = 0, time.Time{}, 0, time.Time{}
	l.last = occurred{}
	if l.notifier.inUse() != None { // without a source the campaigns find out what was missed
		l.readBy(time.Now().Add(timeutil.Random(within)))
	}
	wakeup.Send(l.Wake)
}

// bucketReplaced is called when the bucket was made again: revisions begin anew.
func (l *Listener) bucketReplaced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest = 0
}
