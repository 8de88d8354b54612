package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
)

// WideVar adds the flag of the commands whose tables are narrowed to fit a terminal.
func WideVar(cmd *fisk.CmdClause, target *bool) {
	cmd.Flag("wide", "Show all columns, however narrow the terminal is").UnNegatableBoolVar(target)
}

// JSONVar adds the flag --json, which natscli has too.
func JSONVar(cmd *fisk.CmdClause, help string, target *bool) {
	cmd.Flag("json", help).Short('j').UnNegatableBoolVar(target)
}

// ForceVar adds the flag --force of the commands that ask, which natscli has too.
func ForceVar(cmd *fisk.CmdClause, help string, target *bool) {
	cmd.Flag("force", help).Short('f').UnNegatableBoolVar(target)
}

// IntervalVar adds the flag --interval, which ELECTION_INTERVAL stands for too. The target remains nil if neither is given. The flag
// refuses an interval that fits no bucket; whether it fits the TTL is known when the bucket has been read.
func IntervalVar(cmd *fisk.CmdClause, help string, target **time.Duration) {
	setValue(cmd.Flag("interval", help).Envar("ELECTION_INTERVAL"), "DURATION", func(text string) string {
		d, err := time.ParseDuration(text)
		if err != nil {
			return notADuration
		}
		if longest := timing.LongestInterval(timing.MaxTTL); d < timing.MinPause || d > longest {
			return fmt.Sprintf("is out of range: give %v to %v, and less than the bucket's TTL, or leave it out for a quarter of the TTL", timing.MinPause, longest)
		}
		*target = &d
		return ""
	})
}

// CheckInterval returns an error for an interval of the flag that does not fit the bucket. The library returns it too, after it has begun. It returns
// nil while the bucket cannot be read.
func CheckInterval(ctx context.Context, interval *time.Duration, bucket *election.Bucket) error {
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil
	}
	return CheckIntervalIn(interval, kv.InfoOf(status))
}

// CheckIntervalIn is [CheckInterval] for a bucket that has been read.
func CheckIntervalIn(interval *time.Duration, bucket kv.Info) error {
	if bucket.Validate() != nil { // no interval fits
		return nil
	}
	_, err := (&timing.Durations{Interval: interval}).Timing(bucket.TTL)
	return err
}

// IntervalOption returns the option for an interval. If it is nil, that is the interval that suits most elections in the bucket.
func IntervalOption(interval *time.Duration) election.Option {
	if interval == nil {
		return settings.ShortInterval
	}
	return election.WithCampaignInterval(*interval)
}
