package notify

import (
	"time"

	"github.com/natscampaign/election/internal/wakeup"
)

// stalledAfter is how long a source may have been silent about what this process wrote or read until it counts as stalled.
const stalledAfter = time.Second

// await expects the source to report a revision soon, if it has not. What was read first from the source in use may be older than
// the source, and a lower revision than was reported may be that of a stale read. The caller holds mu.
func (l *Listener) await(revision uint64) {
	switch {
	case l.delivered == 0:
		l.delivered, l.awaited, l.overdue = revision, 0, false
	case revision > l.delivered && l.awaited == 0:
		l.awaited, l.since = revision, time.Now()
	}
}

// CheckStalled reports the source as stalled if it has not reported what this process wrote or read. It returns when that will be so;
// the zero time if nothing is missing.
func (l *Listener) CheckStalled() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited == 0 || l.notifier.inUse() == None {
		return time.Time{}
	}
	if due := l.since.Add(stalledAfter); time.Now().Before(due) {
		return due
	}
	l.since, l.overdue = time.Now(), true
	wakeup.Send(l.notifier.stalled)
	return time.Time{}
}

// isStalled reports whether the source still has not reported that.
func (l *Listener) isStalled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overdue
}
