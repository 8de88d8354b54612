// Package notify tells candidates that something may have changed under their key.
//
// A [Notifier] receives every committed change of one bucket, by one subscription or one watcher for all candidates of this process,
// and passes each on to the [Listener]s of its key. The best source is the subject on which the bucket republishes what it commits: a
// plain subscription, which costs the server no consumer. Without it one watcher serves. Without a watcher nobody is notified, and
// candidates poll. The server sends a process the changes of its own keys, and of no others while these are few: what many processes cost
// the server grows with their keys, and not with the keys of all times the processes.
//
// This package delivers, and decides nothing: a notification is a hint, and package core knows what to do about it. A source may stall
// without a sign. A candidate that has read or written something, of which the source says nothing for a second, reports the source; then the next
// best one takes its place.
//
//	notify.go, listener.go  the two objects, their beginning and their end
//	source.go               which source is in use; republish.go and watch.go are the two there are
//	attempts.go             the attempts of other candidates to write a key
package notify

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/wakeup"
)

// closeTimeout is how long the end of a notifier is waited for.
const closeTimeout = 250 * time.Millisecond

// Notifier receives the changes of one bucket for the candidates of this process.
type Notifier struct {
	bucket *kv.Bucket
	log    *slog.Logger

	source    atomic.Pointer[string]
	created   atomic.Pointer[time.Time] // when the bucket was created, as the server says; distinguishes it from others of its name
	connected atomic.Pointer[time.Time] // when the connection was last made again; zero if it was not
	republish string                    // the subject on which the bucket republishes; empty if it does not; belongs to run
	ready     chan struct{}             // closed when the first source is in use, or there is none
	remake    chan struct{}             // receives when the source should be made again
	watchAll  chan struct{}             // receives when a second key has come, or gone: a watcher is that of a single key, or of all
	stalled   chan struct{}             // receives when a listener reports the source as stalled
	dropped   chan struct{}             // receives when republished changes were dropped

	subscribing sync.Mutex      // held while listeners come and go, and while changes begins or ends; taken before mu
	changes     *natsconn.Keyed // the subscriptions to republished changes; nil while another source is in use; subscribing guards it

	mu        sync.Mutex // never held across I/O
	listeners map[string][]*Listener

	attempts func() []*natsconn.Keyed // the subscriptions to the attempts of candidates
	cancel   context.CancelFunc
	done     chan struct{}
}

// notifiers are those of this process.
var notifiers kv.Shared[Notifier]

// Source is where the changes of a bucket are reported.
type Source struct {
	Subject string    // on which the bucket republishes; empty if it does not
	Created time.Time // when the bucket was created, as the server says
}

// Listen returns a listener for a key of the bucket, and for the candidate of a name and an instance. It starts the
// bucket's notifier if this is the first listener. The caller must call Close.
func Listen(bucket *kv.Bucket, source Source, key, name, instance string, to Receiver, log *slog.Logger) *Listener {
	notifier, release := notifiers.Hold(bucket.ID())
	defer release()
	if *notifier == nil {
		n := newNotifier(bucket, source, log)
		var ctx context.Context
		ctx, n.cancel = context.WithCancel(context.Background())
		defer func() { go n.run(ctx) }() // once it has this listener
		*notifier = n
	}
	l := &Listener{Key: key, Receiver: to, beginning: record.Beginning(name, instance), notifier: *notifier}
	l.notifier.add(l)
	return l
}

// newNotifier returns a notifier that does not run yet.
func newNotifier(bucket *kv.Bucket, source Source, log *slog.Logger) *Notifier {
	n := &Notifier{
		bucket: bucket, republish: source.Subject, log: log, listeners: map[string][]*Listener{},
		ready: make(chan struct{}), remake: make(chan struct{}, 1), watchAll: make(chan struct{}, 1), stalled: make(chan struct{}, 1), dropped: make(chan struct{}, 1), done: make(chan struct{}),
	}
	n.attempts = sync.OnceValue(n.newAttempts)
	n.created.Store(&source.Created)
	n.connected.Store(&time.Time{})
	return n
}

// add adds a listener, and tells its candidate what is known of the source.
func (n *Notifier) add(l *Listener) {
	n.subscribing.Lock()
	defer n.subscribing.Unlock()
	n.mu.Lock()
	l.Receive(core.Joined{Source: n.inUse(), Created: *n.created.Load(), ConnectedAt: *n.connected.Load()})
	n.listeners[l.Key] = append(slices.Clone(n.listeners[l.Key]), l)
	secondKey := len(n.listeners) == 2 && len(n.listeners[l.Key]) == 1
	n.mu.Unlock()
	n.subscribeTo(l.Key)
	if secondKey {
		wakeup.Send(n.watchAll)
	}
}

// Close ends the listener, and its notifier with the last one.
func (l *Listener) Close() {
	l.ReceiveAttempts(false)
	n := l.notifier
	notifier, release := notifiers.Hold(n.bucket.ID())
	last := n.remove(l)
	if last {
		*notifier = nil
	}
	release()
	if last {
		n.cancel()
		select {
		case <-n.done:
		case <-time.After(closeTimeout):
		}
	}
}

// remove removes a listener, and reports whether it was the last one.
func (n *Notifier) remove(l *Listener) (last bool) {
	n.subscribing.Lock()
	if n.changes != nil {
		n.changes.Remove(l.Key)
	}
	n.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(n.listeners[l.Key]), func(other *Listener) bool { return other == l })
	if n.listeners[l.Key] = rest; len(rest) == 0 {
		delete(n.listeners, l.Key)
	}
	keys := len(n.listeners)
	n.mu.Unlock()
	n.subscribing.Unlock()
	if keys == 1 && len(rest) == 0 && n.inUse() == core.NoSource { // a watcher of the one key that is left may be permitted
		wakeup.Send(n.watchAll)
	}
	return keys == 0
}

// of returns the listeners of a key. The list is never changed.
func (n *Notifier) of(key string) []*Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[key]
}

// all returns the listeners of all keys.
func (n *Notifier) all() []*Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(n.listeners))...)
}

// delivery is a notification while it is passed on. Nobody keeps it.
type delivery struct {
	core.Notification
	value core.Value
}

// deliveries are used again: a process with thousands of elections receives thousands of notifications in each TTL.
var deliveries = sync.Pool{New: func() any { return new(delivery) }}

// notify passes a notification on to the listeners of its key.
func (n *Notifier) notify(key string, notification core.Notification, value []byte) {
	d := deliveries.Get().(*delivery)
	*d = delivery{Notification: notification, value: core.Value{Bytes: value, Revision: notification.Revision}}
	d.Value = &d.value
	for _, l := range n.of(key) {
		l.Receiver.Receive(&d.Notification)
	}
	*d = delivery{}
	deliveries.Put(d)
}
