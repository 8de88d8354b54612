package notify

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

// ErrUnclear takes the place of a read that proves nothing, because it may be older than what is stored.
var ErrUnclear = errors.New("what was read may be older than what is stored")

// ReadBy has the key read at the given time at the latest.
func (l *Listener) ReadBy(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy(at)
}

// readBy has the key read at the given time at the latest. The caller holds mu.
func (l *Listener) readBy(at time.Time) {
	if l.readAt.IsZero() || at.Before(l.readAt) {
		l.readAt = at
	}
}

// ExpectRelease has the key read at the given time: by then, a leader says, it will have released the key to this candidate. That saves the
// candidate the wait for the notification, where that takes long. Anybody may say so: it causes no read within a TTL of the last one, and a
// read for nothing does not count against notifications, whose subject others may be denied.
func (l *Listener) ExpectRelease(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.read) >= l.TTL && !l.own() {
		l.readBy(timeutil.Later(at, l.retry))
		l.wakeToRead(now)
	}
}

// ReadDue returns when the key is to be read; the zero time if there is no reason to.
func (l *Listener) ReadDue() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readAt
}

// BeginRead is called when the key is about to be read. It returns whether a notification of a vacancy is the reason, and a function
// that the caller passes the result to.
func (l *Listener) BeginRead() (vacancy bool, done func(kv.State, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, began := l.hint, time.Now()
	l.readAt, l.hint = time.Time{}, nil
	return h != nil && h.Vacant(), func(s kv.State, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil && !errors.Is(err, ErrUnclear) {
			if began.After(l.ConnectedAt()) { // else the answer was lost with a connection, and the key is read again on the new one
				l.readFailed(h)
			}
			return
		}
		continues := l.continues(s)
		l.failures, l.retry = 0, time.Time{}
		if err == nil {
			l.learn(s)
		}
		switch {
		case err == nil && !continues: // hints of it that seemed wrong, because a replica lagged, were right
			l.wrong = 0
		case h != nil:
			l.judge(h, s, err)
		}
	}
}

// readFailed has the key read again soon, for a hint if there is one, but not often: notifications do not cause more reads while these
// fail. A read that fails does not prove a hint wrong. The caller holds mu.
func (l *Listener) readFailed(h *hint) {
	if h == nil && (l.highest == 0 || l.own()) { // it may never be readable
		return
	}
	delay := l.TTL / 8
	switch l.failures++; {
	case h == nil:
	case l.failures == 1:
		delay = lagDelay
	case l.failures == 2:
		delay = lagGrowth * lagDelay
	}
	l.retry = time.Now().Add(delay)
	if h != nil && l.hint == nil {
		l.hint = h
	}
	l.readAt = l.retry
}
