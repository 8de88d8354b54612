package look

import (
	"log/slog"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/observe"
)

// OverdueInterval is how often Report is to be called.
const OverdueInterval = 250 * time.Millisecond

// Overdue logs which leaders of observed elections have not renewed in time: until the key expires, no event says so. It is for one goroutine.
type Overdue struct {
	TTL time.Duration // of the bucket
	Log *slog.Logger

	leaders map[string]renewing // by key, those that were not logged
}

// renewing is a leader whose next renewal is awaited.
type renewing struct {
	name      string
	seen, due time.Time // the last renewal, and when the next one is overdue
}

// Follow takes note of an event.
func (o *Overdue) Follow(e observe.Event) {
	if e.Kind >= observe.Released {
		delete(o.leaders, e.Key)
		return
	}
	if o.leaders == nil {
		o.leaders = map[string]renewing{}
	}
	now := time.Now()
	interval := (&Holder{Leader: e.Leader}).RenewalInterval(o.TTL)
	o.leaders[e.Key] = renewing{name: e.Leader.Name, seen: now, due: now.Add(timing.RenewalOverdue(interval, o.TTL))}
}

// Report logs the leaders whose renewal has become overdue.
func (o *Overdue) Report() {
	now := time.Now()
	for key, l := range o.leaders {
		if now.Before(l.due) {
			continue
		}
		delete(o.leaders, key)
		o.Log.Info("Leader has not renewed", "election", terminal.Printable(key), "leader", terminal.Printable(l.name),
			"since", now.Sub(l.seen).Round(time.Millisecond), "expires-in", l.seen.Add(o.TTL).Sub(now).Round(time.Millisecond))
	}
}
