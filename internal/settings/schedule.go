package settings

import (
	"time"

	"github.com/robfig/cron/v3"

	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// SetSchedule sets when a leader hands over, by a duration or a line of cron; see WithRelinquish.
func (o *Options) SetSchedule(spec string) { o.Schedule, o.scheduleErr = parseSchedule(spec) }

// every is a schedule without regard to the time of day.
type every time.Duration

// Next returns the time after one period.
func (d every) Next(now time.Time) time.Time { return now.Add(time.Duration(d)) }

func parseSchedule(spec string) (cron.Schedule, error) {
	if d, err := time.ParseDuration(spec); err == nil {
		if d < timing.MinTTL {
			return nil, validate.Errorf("WithRelinquish(%q) is too short: give at least %v", spec, timing.MinTTL)
		}
		return every(d), nil
	}
	s, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, validate.Errorf("WithRelinquish(%q): %w: give a duration such as %q, or five fields such as %q", spec, err, "6h", "0 4 * * *")
	}
	if s.Next(time.Now()).IsZero() {
		return nil, validate.Errorf("WithRelinquish(%q) never comes: give a date that exists", spec)
	}
	return s, nil
}
