package notify

import (
	"bytes"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
)

// ReceiveAttempts has the listener receive the attempts of other candidates to write its key, or no longer. What is published there are
// attempts, including those of candidates that lose. Without a known connection there are none.
func (l *Listener) ReceiveAttempts(on bool) {
	n := l.notifier
	n.mu.Lock()
	was := l.attempts
	l.attempts = on
	n.mu.Unlock()
	if on == was || n.bucket.Conn() == nil {
		return
	}
	var failures []error
	for _, k := range n.attempts() {
		if !on {
			k.Remove(l.Key)
		} else if err := k.Add(l.Key); err != nil {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		n.log.Debug("Attempts cannot be received", "bucket", n.bucket.Bucket(), "error", err)
	}
}

// newAttempts returns the subscriptions to attempts.
func (n *Notifier) newAttempts() (subs []*natsconn.Keyed) {
	for i, prefix := range n.attemptPrefixes() {
		subs = append(subs, &natsconn.Keyed{
			Conn: n.bucket.Conn(), Subject: func(key string) string { return prefix + key }, MaxBytes: maxAttemptBytes, Wide: i > 0, Queue: record.NewID(),
			Handle: func(m *nats.Msg) {
				if isAttempt(m) {
					n.attempted(strings.TrimPrefix(m.Subject, prefix), m.Data)
				}
			},
		})
	}
	return subs
}

// attempted passes an attempt on to the listeners of its key, but for the one whose candidate made it.
func (n *Notifier) attempted(key string, value []byte) {
	v := core.Value{Bytes: value}
	for _, l := range n.of(key) {
		if !bytes.HasPrefix(value, l.beginning) {
			l.Receiver.Receive(core.Attempt{Value: &v})
		}
	}
}

// isAttempt reports whether a message may be what a candidate published to write a key: with a reply subject for the acknowledgement, and
// without the headers that the server gives to its own messages and to what a stream has stored. A client has the server put such messages
// on the subject of a key, also where the client may not publish.
func isAttempt(m *nats.Msg) bool {
	return m.Reply != "" && m.Header.Get("Status") == "" && m.Header.Get(jetstream.StreamHeader) == ""
}

// attemptPrefixes returns what the subjects begin with to which candidates publish their attempts: with the API prefix, too, where
// JetStream is reached by one, as on a leaf node by that of a domain.
//
// The leader subscribes to its own key, so that servers need not permit more, but below an API prefix to a pattern. A subscription to the
// exact subject of its key, below the prefix of a domain, would take the requests away from JetStream: on a leaf node the server then routes
// them to the subscriber alone (nats-server 2.15.2).
func (n *Notifier) attemptPrefixes() []string {
	prefixes := []string{n.bucket.Subject("")}
	if own := kv.SubjectToWrite(kv.APIPrefix(n.bucket.JetStream()), n.bucket.Bucket(), ""); own != prefixes[0] {
		prefixes = append(prefixes, own)
	}
	return prefixes
}
