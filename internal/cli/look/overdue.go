package look

import (
	"log/slog"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/observe"
)

// overdueSpacing is how often Overdue looks at all leaders at most.
const overdueSpacing = 250 * time.Millisecond

// Overdue logs which leaders of observed elections have not renewed in time: until the key expires, no event says so. It is for one goroutine.
type Overdue struct {
	TTL time.Duration // of the bucket
	Log *slog.Logger

	leaders map[string]*renewing // by key
	wake    <-chan time.Time     // nil while there is no leader to look at
}

// renewing is a leader whose next renewal is awaited.
type renewing struct {
	name      string
	seen, due time.Time // the last renewal, and when the next one is overdue; due is zero once that was logged
}

// Follow takes note of an event.
func (o *Overdue) Follow(e observe.Event) {
	if e.Kind >= observe.Released {
		delete(o.leaders, e.Key)
		return
	}
	if o.leaders == nil {
		o.leaders = map[string]*renewing{}
	}
	now := time.Now()
	interval := (&Holder{Leader: e.Leader}).RenewalInterval(o.TTL)
	o.leaders[e.Key] = &renewing{name: e.Leader.Name, seen: now, due: now.Add(timing.RenewalOverdue(interval, o.TTL))}
	if o.wake == nil {
		o.wake = time.After(max(time.Until(o.leaders[e.Key].due), 0))
	}
}

// Due returns a channel that delivers when Report is to be called.
func (o *Overdue) Due() <-chan time.Time { return o.wake }

// Report logs the leaders whose renewal has become overdue.
func (o *Overdue) Report() {
	now, next := time.Now(), time.Time{}
	for key, l := range o.leaders {
		switch {
		case l.due.IsZero():
		case !now.Before(l.due):
			l.due = time.Time{}
			o.Log.Info("Leader has not renewed", "election", terminal.Printable(key), "leader", terminal.Printable(l.name),
				"since", now.Sub(l.seen).Round(time.Millisecond), "expires-in", l.seen.Add(o.TTL).Sub(now).Round(time.Millisecond))
		case next.IsZero() || l.due.Before(next):
			next = l.due
		}
	}
	o.wake = nil
	if !next.IsZero() {
		o.wake = time.After(max(next.Sub(now), overdueSpacing))
	}
}
