package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/checkup"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
)

const checkHelp = `It checks the bucket, as candidates need it, and the elections KEY, each of which must have a leader; without KEY it checks
those that have a leader, so name the elections that must have one. It is a plugin for Nagios and its like. Exit codes:

    0  OK         all is well
    1  WARNING    a leader's leadership does not count yet, or its renewal is overdue; or the bucket is worse than it could be
    2  CRITICAL   nobody leads, a lease has run out, two candidates claim to lead, or the bucket is unfit for elections
    3  UNKNOWN    nothing could be found out, or wrong usage

Formats are text, for people, which is the default; nagios, one line with performance data; json; and prometheus, for the
textfile collector of the node exporter. Ages are by the server's clock; a difference of more than a second from this host's
clock is a finding of severity info. With --json the result is one object: "status", "error" (if it is UNKNOWN), "bucket",
"server", "ttl_s", "clock_ahead_s" (this host's clock), "elections" (as ls has them) and "findings" (each "key", "code",
"severity", "message", "fix"). Codes are those of the Go package admin, and

    no-leader, lease-over, two-leaders    critical
    leader-elect, renewal-overdue         warning
    clock-differs                         info

The check of the bucket includes the permissions of this very connection: for a connection that may only read, leave out
"write-refused" with --ignore. Nothing is written.`

// checkCommand is the command check.
type checkCommand struct {
	*cli.Env
	checkup.Options
	format string
	json   bool

	formatSet, overdueSet bool
}

func registerCheck(app *fisk.Application, t *cli.Env) {
	c := &checkCommand{Env: t}
	cmd := app.Command("check", "Checks bucket and elections, for monitoring").HelpLong(checkHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The elections that must have a leader, keys of the bucket").StringsVar(&c.Keys)
	cmd.Flag("format", "How to write the result: text, nagios, json or prometheus").Default(checkup.FormatText).IsSetByUser(&c.formatSet).
		EnumVar(&c.format, checkup.FormatText, checkup.FormatNagios, checkup.FormatJSON, checkup.FormatPrometheus)
	cmd.Flag("json", "The same as --format json").UnNegatableBoolVar(&c.json)
	cmd.Flag("grace", "How long to wait for a leader before its absence is reported").PlaceHolder("DURATION").DurationVar(&c.Grace)
	cmd.Flag("overdue", "Age of a record from which its renewal is overdue (default 0.85 of the TTL)").PlaceHolder("DURATION").IsSetByUser(&c.overdueSet).DurationVar(&c.Overdue)
	cmd.Flag("ignore", "Leave out the findings of that code; may be repeated").PlaceHolder("CODE").StringsVar(&c.Ignore)
}

// check finds what is wrong with the command line before anything is begun.
func (c *checkCommand) check() error {
	var problems []error
	for _, key := range c.Keys {
		problems = append(problems, cli.CheckKey(key, false))
	}
	if c.json && c.formatSet && c.format != checkup.FormatJSON {
		problems = append(problems, fmt.Errorf("--json and --format %s exclude each other: give one of them", c.format))
	}
	if c.json {
		c.format = checkup.FormatJSON
	}
	if c.Grace < 0 {
		problems = append(problems, fmt.Errorf("--grace %v: give a positive duration such as 5s", c.Grace))
	}
	if c.overdueSet && c.Overdue <= 0 {
		problems = append(problems, fmt.Errorf("--overdue %v: give a positive duration such as 25s, or leave it out for 0.85 of the TTL", c.Overdue))
	}
	slices.Sort(c.Keys)
	c.Keys = slices.Compact(c.Keys)
	return errors.Join(problems...)
}

// run judges, tells, and ends with the exit code that says so.
func (c *checkCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return c.unknown(err)
	}
	v, err := look.Open(ctx, c.Env, "check")
	if err != nil {
		return c.unknown(cli.OrInterrupted(ctx, err))
	}
	defer v.Conn.Close()
	a, err := c.Assess(ctx, v)
	if err != nil {
		return c.unknown(cli.OrInterrupted(ctx, err))
	}
	if err := a.Write(c.Stdout, c.format); err != nil {
		return err
	}
	if a.Status == checkup.GradeOK {
		return nil
	}
	return &cli.ExitError{Code: int(a.Status)}
}

// unknown tells of an error in the format that is asked for, on stdout where monitoring looks for it.
func (c *checkCommand) unknown(err error) error {
	a := checkup.Unknown(c.Bucket, err)
	switch c.format {
	case checkup.FormatNagios:
		if a.Write(c.Stdout, c.format) == nil {
			return &cli.ExitError{Code: int(checkup.GradeUnknown)}
		}
	case checkup.FormatJSON, checkup.FormatPrometheus:
		err = errors.Join(err, a.Write(c.Stdout, c.format))
	}
	return &cli.ExitError{Code: int(checkup.GradeUnknown), Message: err.Error()}
}
