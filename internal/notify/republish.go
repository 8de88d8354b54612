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
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
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
	nc := n.bucket.Conn()
	before := nc.LastError()
	sub, err := nc.Subscribe(n.republish, n.republished)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		_ = sub.SetPendingLimits(-1, maxPendingBytes)
		err = n.refused(ctx, before)
	}
	if err != nil {
		n.log.Debug("Republished changes cannot be subscribed to", "bucket", n.bucket.Bucket(), "error", err)
		return true
	}
	n.use(core.Republish, true)
	for {
		select {
		case <-ctx.Done():
			return false
		case s := <-changes:
			n.statusChanged(s)
			if n.refused(ctx, nil) != nil { // the client has subscribed again before it reports the connection
				return true
			}
			n.use(core.Republish, true) // what was published meanwhile is lost
		case <-n.remake:
			return false
		case <-n.stalled:
			if n.confirmStalled(ctx, sub) {
				n.log.Warn("Republished changes do not arrive", "bucket", n.bucket.Bucket(), "subject", n.republish)
				return true
			}
		}
	}
}

// confirmStalled reports whether something is still missing once everything is handled that the server sent until now: a busy host may
// only be late to handle it.
func (n *Notifier) confirmStalled(ctx context.Context, sub *nats.Subscription) bool {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	if n.bucket.Conn().FlushWithContext(ctx) != nil {
		return false // the connection is reported when it is there again
	}
	for waiting, _, err := sub.Pending(); err == nil && waiting > 0 && timeutil.Sleep(ctx, 10*time.Millisecond); {
		waiting, _, err = sub.Pending()
	}
	return slices.ContainsFunc(n.all(), func(l *Listener) bool { return l.SourceOverdue() })
}

// refused returns the error of a server that does not permit the subscription; before is the last error that the connection had
// reported when the subscription was made.
func (n *Notifier) refused(ctx context.Context, before error) error {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	nc := n.bucket.Conn()
	return kv.FindRefusal(ctx, nc, before, `Subscription to "`+n.republish+`"`, func() error {
		probe, err := nc.SubscribeSync(n.republish)
		if err == nil {
			err = probe.Unsubscribe()
		}
		return err
	})
}

// serverHeaders are the headers that the server adds to what it republishes. The writer of the record may have set them too, so that a
// message has two: then neither is taken for the server's.
var serverHeaders = []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.LastSequenceHeader}

// republished handles one republished message.
func (n *Notifier) republished(m *nats.Msg) {
	if m.Header.Get("Status") != "" || slices.ContainsFunc(serverHeaders, func(name string) bool { return len(m.Header.Values(name)) > 1 }) {
		return
	}
	key, ours := strings.CutPrefix(m.Header.Get(jetstream.SubjectHeader), n.bucket.Subject(""))
	revision, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if !ours || err != nil {
		return
	}
	written, _ := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // zero: not known
	n.notify(key, core.Notification{Revision: revision, Written: written, Removal: kv.RemovalOf(m.Header)}, m.Data)
}
