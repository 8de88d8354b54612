package election

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// relinquishJitter is by what part of the time since the last one a scheduled handover is put off at random, at most.
	relinquishJitter = 10
	// maxRelinquishJitter is the longest that it is.
	maxRelinquishJitter = time.Minute
	// wallCheck is how often the wall clock is looked at that a schedule goes by: it may be set.
	wallCheck = time.Minute
)

// every is a schedule without regard to the time of day.
type every time.Duration

// Next returns the time after one period.
func (d every) Next(now time.Time) time.Time { return now.Add(time.Duration(d)) }

// relinquish hands over at the scheduled times for as long as t lasts, if there is anybody to take over; if not, it
// leads on until the next.
func (e *Election) relinquish(ctx context.Context, t *tenure, schedule cron.Schedule) {
	for {
		now := time.Now()
		at := schedule.Next(now)
		if at.IsZero() {
			return // a date that never comes again
		}
		at = at.Add(randomBelow(min(at.Sub(now)/relinquishJitter, maxRelinquishJitter)))
		for left := time.Until(at); left > 0; left = time.Until(at) {
			select {
			case <-t.ended:
				return
			case <-time.After(min(left, wallCheck)):
			}
		}
		heir := e.someoneReady(ctx)
		if heir == "" {
			e.log.Info("Nobody is ready to take over, leading on", "term", t.term.Number)
			continue
		}
		if t.nominate(heir) {
			t.end(reasonRelinquished)
			return
		}
	}
}

// someoneReady returns the name of a candidate that would take over now: one of the highest priority, at random; none if
// nobody answers.
func (e *Election) someoneReady(ctx context.Context) string {
	a := e.ear.Load()
	if a == nil {
		return ""
	}
	var heirs []Candidate
	met := map[string]bool{}
	err := a.meet(ctx, func(c Candidate) (enough bool) {
		if c.Ready && c.Name != e.name && !met[c.Instance] {
			met[c.Instance] = true
			if len(heirs) > 0 && c.Priority > heirs[0].Priority {
				heirs = nil
			}
			if len(heirs) == 0 || c.Priority == heirs[0].Priority {
				heirs = append(heirs, c)
			}
		}
		return false
	})
	if err != nil {
		e.log.Debug("Candidates cannot be asked", "error", err)
	}
	if len(heirs) == 0 {
		return ""
	}
	return heirs[rand.N(len(heirs))].Name
}
