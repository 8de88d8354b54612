package election

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// relinquishJitter is by what part of the time since the last one a scheduled handover is put off at random, at most.
	relinquishJitter = 10
	// maxRelinquishJitter is the longest that it is put off.
	maxRelinquishJitter = time.Minute
	// wallClockCheck is how often a schedule looks at the wall clock: somebody may set it.
	wallClockCheck = time.Minute
)

// relinquish hands over at the scheduled times for as long as t lasts, if a candidate is ready to take over; if not, this one leads on
// until the next time.
func (r *run) relinquish(ctx context.Context, t *activeTerm, schedule cron.Schedule) {
	for {
		now := time.Now()
		at := schedule.Next(now)
		if at.IsZero() {
			return // a date that never comes again
		}
		at = at.Add(timeutil.Random(min(at.Sub(now)/relinquishJitter, maxRelinquishJitter)))
		for left := time.Until(at); left > 0; left = time.Until(at) {
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(min(left, wallClockCheck)):
			}
		}
		successor := r.anyReady(ctx)
		if ctx.Err() != nil {
			return // the term has ended meanwhile
		}
		if successor == nil {
			r.log.Info("No candidate is ready to take over, leading on", "term", t.public.Number)
			continue
		}
		if r.handover(t, successor, core.Relinquished) == nil {
			return
		}
	}
}

// anyReady returns a candidate that would take over now: one of the highest priority, at random; nil if none answers.
func (r *run) anyReady(ctx context.Context) *control.Candidate {
	var ready []control.Candidate
	met := map[string]bool{}
	err := r.member.Meet(ctx, "", 0, func(c control.Candidate) (enough bool) {
		if c.Ready && c.Instance != r.instanceID() && !met[c.Instance] {
			met[c.Instance] = true
			if len(ready) > 0 && c.Priority > ready[0].Priority {
				ready = nil
			}
			if len(ready) == 0 || c.Priority == ready[0].Priority {
				ready = append(ready, c)
			}
		}
		return false
	})
	if err != nil {
		r.log.Debug("Candidates cannot be asked", "error", err)
	}
	if len(ready) == 0 {
		return nil
	}
	return &ready[rand.N(len(ready))]
}
