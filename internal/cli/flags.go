package cli

import (
	"fmt"
	"time"

	"github.com/choria-io/fisk"
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
