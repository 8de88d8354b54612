package notify

import (
	"context"
	"time"

	"github.com/natscampaign/election/internal/core"
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

// Receiver is a candidate that is notified. Its methods must not wait.
type Receiver interface {
	Receive(n core.Notice)
	SourceOverdue() bool // the source has not reported something that the candidate read or wrote
	Closed()             // the connection was closed for good
}

// Listener is the part of one candidate in a Notifier.
type Listener struct {
	Key string
	Receiver
	notifier  *Notifier
	beginning []byte // of every record that the candidate writes: it does not receive its own attempts
	attempts  bool   // it receives those of others; the notifier's mutex guards it
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

// Remake has the notifier ask about the bucket and start its source anew.
func (l *Listener) Remake() { wakeup.Send(l.notifier.remake) }

// SourceStalled reports the source as stalled.
func (l *Listener) SourceStalled() { wakeup.Send(l.notifier.stalled) }
