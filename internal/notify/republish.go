package notify

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/wakeup"
)

const (
	// maxPendingBytes is how many bytes of changes may wait to be handled: a process with 2,000 elections may have to learn of all of them at
	// once, and of records of several KiB. What comes beyond that is dropped, as by a source that stalls.
	maxPendingBytes = 8 << 20
	// maxAttemptBytes is how many bytes of attempts may wait in a subscription: those of a thousand candidates that campaign at once, or a few
	// of the largest records. What is dropped costs a candidate its place among the successors, until it announces itself again.
	maxAttemptBytes = 1 << 20
)

// subscribe receives changes by the bucket's republished messages, until there is reason to use another source. It reports whether
// that is because this source is stalled or refused.
func (n *Notifier) subscribe(ctx context.Context, changes <-chan nats.Status) (stalled bool) {
	before := n.bucket.Conn().LastError()
	subject, err := n.beginChanges()
	defer n.endChanges()
	if err == nil {
		err = n.refused(ctx, before, subject)
	}
	if err != nil {
		n.log.Debug("Republished changes cannot be subscribed to", "bucket", n.bucket.Bucket(), "error", err)
		return true
	}
	n.use(core.Republish, true)
	dropped, again := n.dropped, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-dropped: // a flood has filled what may wait; it does not make candidates read more often than this
			n.log.Warn("Republished changes dropped, because too many came", "bucket", n.bucket.Bucket())
			n.use(core.Republish, true)
			dropped, again = nil, time.After(sourceInterval)
		case <-again:
			dropped = n.dropped
		case s := <-changes:
			n.statusChanged(s)
			if n.refused(ctx, nil, subject) != nil { // the client has subscribed again before it reports the connection
				return true
			}
			n.use(core.Republish, true) // what was published meanwhile is lost
		case <-n.remake:
			return false
		case <-n.stalled:
			if n.confirmStalled(ctx) {
				n.log.Warn("Republished changes do not arrive", "bucket", n.bucket.Bucket(), "subject", n.republish)
				return true
			}
		}
	}
}

// beginChanges subscribes to the republished changes of the keys that have listeners, and has those of later listeners subscribed to. It
// returns the subject of one of them.
func (n *Notifier) beginChanges() (subject string, err error) {
	n.subscribing.Lock()
	defer n.subscribing.Unlock()
	prefix, each := strings.CutSuffix(n.republish, ">")
	subjectOf := func(key string) string { return prefix + key }
	if !each { // the changes of all keys have one subject
		subjectOf = func(string) string { return prefix }
	}
	n.changes = &natsconn.Keyed{
		Conn: n.bucket.Conn(), Subject: subjectOf, Wide: !each, MaxBytes: maxPendingBytes, Queue: record.NewID(),
		Handle: func(m *nats.Msg) { n.republished(m, subjectOf) }, Dropped: func() { wakeup.Send(n.dropped) },
	}
	subject = n.republish // while nobody listens
	for _, l := range n.all() {
		subject = n.changes.Subject(l.Key)
		if err := n.changes.Add(l.Key); err != nil {
			return "", err
		}
	}
	return subject, nil
}

// subscribeTo subscribes to the republished changes of a key, if that source is in use. The caller holds subscribing. If that fails, the
// candidate misses what it writes, and reports the source as stalled.
func (n *Notifier) subscribeTo(key string) {
	if n.changes == nil {
		return
	}
	if err := n.changes.Add(key); err != nil {
		n.log.Debug("Republished changes of a key cannot be subscribed to", "bucket", n.bucket.Bucket(), "key", key, "error", err)
	}
}

// endChanges ends the subscriptions to republished changes.
func (n *Notifier) endChanges() {
	n.subscribing.Lock()
	defer n.subscribing.Unlock()
	n.changes.Close()
	n.changes = nil
}

// confirmStalled reports whether something is still missing once everything is handled that the server sent until now: a busy host may
// only be late to handle it.
func (n *Notifier) confirmStalled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	if n.bucket.Conn().FlushWithContext(ctx) != nil {
		return false // the connection is reported when it is there again
	}
	for n.changes.Pending() > 0 && timeutil.Sleep(ctx, 10*time.Millisecond) {
	}
	return slices.ContainsFunc(n.all(), func(l *Listener) bool { return l.SourceOverdue() })
}

// refused returns the error of a server that does not permit a subscription to the subject; before is the last error that the connection
// had reported when the subscription was made.
func (n *Notifier) refused(ctx context.Context, before error, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	nc := n.bucket.Conn()
	return kv.FindRefusal(ctx, nc, before, `Subscription to "`+subject+`"`, func() error {
		probe, err := nc.SubscribeSync(subject)
		if err == nil {
			err = probe.Unsubscribe()
		}
		return err
	})
}

// republished handles one republished message. A message about a key counts only on the subject of that key: whoever may publish there may be permitted no
// other.
func (n *Notifier) republished(m *nats.Msg, subjectOf func(key string) string) {
	key, ours := strings.CutPrefix(kv.LastHeader(m.Header, jetstream.SubjectHeader), n.bucket.Subject(""))
	revision, err := strconv.ParseUint(kv.LastHeader(m.Header, jetstream.SequenceHeader), 10, 64)
	if !ours || err != nil || m.Subject != subjectOf(key) {
		return
	}
	written, _ := time.Parse(time.RFC3339Nano, kv.LastHeader(m.Header, jetstream.TimeStampHeaer)) // zero: not known
	n.notify(key, core.Notification{Revision: revision, Written: written, Removal: kv.RemovalOf(m.Header, m.Data)}, m.Data)
}
