package main

import (
	"context"
	"errors"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/validate"
)

// checkCommand implements check.
type checkCommand struct {
	*cli.Env
	checkup.Options
	format, as    string
	json, verbose bool

	formatSet, overdueSet bool
}

func registerCheck(app *fisk.Application, env *cli.Env) {
	c := &checkCommand{Env: env}
	cmd := app.Command("check", "Checks the bucket and its elections, and says why nobody leads").HelpLong(checkup.Help).Action(cli.Action(c.run))
	cmd.Arg("key", "Elections that must have a leader, keys of the bucket").StringsVar(&c.Keys)
	cli.KeysVar(cmd.Flag("expect", "Elections that must have a leader, separated by commas; all others in the bucket are checked too"), &c.Expected)
	cli.EnumVar(cmd.Flag("format", "Format of the result: text, nagios, json or prometheus").Default(checkup.FormatText).IsSetByUser(&c.formatSet),
		&c.format, checkup.FormatText, checkup.FormatNagios, checkup.FormatJSON, checkup.FormatPrometheus)
	cli.JSONVar(cmd, "Write the result as JSON, like --format json", &c.json)
	cmd.Flag("verbose", "Write the text with all that is known of each finding").Short('v').UnNegatableBoolVar(&c.verbose)
	cli.EnumVar(cmd.Flag("as", "What the user of the connection is for, which decides which permissions it needs: candidate, observer or operator").Default(admin.RoleCandidate.String()),
		&c.as, admin.RoleCandidate.String(), admin.RoleObserver.String(), admin.RoleOperator.String())
	cli.DurationVar(cmd.Flag("grace", "How long to wait for a leader before its absence is reported").Default("0s"), &c.Grace)
	cli.DurationVar(cmd.Flag("overdue", "Age of a record from which its renewal is overdue (default the interval of its leader and two fifths of the rest of the TTL)").IsSetByUser(&c.overdueSet), &c.Overdue)
	cli.IntervalVar(cmd, "Interval of the candidates, for the forecast of failovers and outages (default that of the leaders)", &c.Interval)
	cmd.Flag("ignore", "Ignore findings with this code; repeatable").PlaceHolder("CODE").StringsVar(&c.Ignore)
}

// check validates the command line before the command connects.
func (c *checkCommand) check() error {
	var problems cli.Problems
	for _, key := range c.Keys {
		problems.Add(validate.Key(key))
	}
	problems.If(len(c.Keys) > 0 && len(c.Expected) > 0, "KEY and --expect exclude each other: give all elections to one of them")
	problems.If(c.json && c.formatSet && c.format != checkup.FormatJSON, "--json and --format %s exclude each other: give one of them", c.format)
	if c.json {
		c.format = checkup.FormatJSON
	}
	for _, code := range c.Ignore {
		problems.Add(checkIgnored(code))
	}
	problems.If(c.Grace < 0, "--grace %v: give a positive duration such as 5s", c.Grace)
	problems.If(c.overdueSet && c.Overdue <= 0, "--overdue %v: give a positive duration such as 25s, or leave it out", c.Overdue)
	problems.Add(c.As.UnmarshalText([]byte(c.as)))
	slices.Sort(c.Keys)
	c.Keys = slices.Compact(c.Keys)
	return problems.Err()
}

// run checks, writes the result, and returns the exit code of its status.
func (c *checkCommand) run(ctx context.Context) error {
	var result *checkup.Result
	err := cli.Interruptible(func(ctx context.Context) (err error) {
		result, err = c.evaluate(ctx)
		return err
	})(ctx)
	if err != nil {
		return c.unknown(err)
	}
	return c.report(result)
}

// evaluate checks the bucket and its elections.
func (c *checkCommand) evaluate(ctx context.Context) (*checkup.Result, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	v, err := look.Open(ctx, c.Env, "check")
	var missing *cli.MissingBucketError
	if errors.As(err, &missing) {
		return c.WithoutBucket(c.Bucket, missing), nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Conn.Close()
	return c.Evaluate(ctx, v)
}

// report writes the result, and returns the exit code of its status.
func (c *checkCommand) report(result *checkup.Result) (err error) {
	if c.verbose && c.format == checkup.FormatText {
		err = result.WriteVerbose(c.Stdout)
	} else {
		err = result.Write(c.Stdout, c.format)
	}
	if err != nil {
		return err
	}
	if result.Status == checkup.StatusOK {
		return nil
	}
	return &cli.ExitError{Code: int(result.Status)}
}

// unknown writes an error in the wanted format to stdout, where monitoring reads it, and returns the exit code of UNKNOWN.
func (c *checkCommand) unknown(err error) error {
	err = c.Connection.Explain(cli.AsFlagError(err))
	result := checkup.UnknownResult(c.Bucket, err)
	switch c.format {
	case checkup.FormatNagios:
		if result.Write(c.Stdout, c.format) == nil {
			return &cli.ExitError{Code: int(checkup.StatusUnknown)}
		}
	case checkup.FormatJSON, checkup.FormatPrometheus:
		err = errors.Join(err, result.Write(c.Stdout, c.format))
	}
	return &cli.ExitError{Code: int(checkup.StatusUnknown), Message: err.Error()}
}
