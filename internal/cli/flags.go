package cli

import (
	"fmt"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
)

// WideVar adds the flag of the commands whose tables are narrowed to fit a terminal.
func WideVar(cmd *fisk.CmdClause, target *bool) {
	cmd.Flag("wide", "Show all columns, however narrow the terminal is").UnNegatableBoolVar(target)
}

// DurationVar has a flag set a duration. Its error names the flag, the environment variable that stands for the flag if there is one, and
// the value: fisk's own names none of them.
func DurationVar(flag *fisk.FlagClause, target *time.Duration) {
	flag.SetValue(&durationValue{flag, target})
}

// IntervalVar adds the flag --interval, which ELECTION_INTERVAL stands for too. The target remains nil if neither is given. The flag
// refuses an interval that fits no bucket; whether it fits the TTL is known when the bucket has been read.
func IntervalVar(cmd *fisk.CmdClause, help string, target **time.Duration) {
	flag := cmd.Flag("interval", help).Envar("ELECTION_INTERVAL").PlaceHolder("DURATION")
	flag.SetValue(&intervalValue{durationValue{flag, new(time.Duration)}, target})
}

type intervalValue struct {
	durationValue
	given **time.Duration
}

// Set reads an interval.
func (v *intervalValue) Set(text string) error {
	if err := v.durationValue.Set(text); err != nil {
		return err
	}
	d := *v.target
	if longest := kv.MaxTTL - settings.DefaultMargin(kv.MaxTTL) - settings.MinRoom; d < settings.MinPause || d > longest {
		return fmt.Errorf("--interval or ELECTION_INTERVAL: %v is out of range: give %v to %v, and less than the bucket's TTL, or leave it out for 0.75 of the TTL", d, settings.MinPause, longest)
	}
	*v.given = &d
	return nil
}

// IntervalOption returns the option for an interval; none if interval is nil.
func IntervalOption(interval *time.Duration) []election.Option {
	if interval == nil {
		return nil
	}
	return []election.Option{election.WithCampaignInterval(*interval)}
}

type durationValue struct {
	flag   *fisk.FlagClause
	target *time.Duration
}

// Set reads a duration as [time.ParseDuration] does.
func (v *durationValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		model := v.flag.Model()
		name := "--" + model.Name
		if model.Envar != "" {
			name += " or " + model.Envar
		}
		return fmt.Errorf("%s: %q is not a duration: give one such as 5s or 1m30s", name, text)
	}
	*v.target = d
	return nil
}

// String returns the duration.
func (v *durationValue) String() string { return v.target.String() }
