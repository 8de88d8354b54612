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

const checkHelp = `The command is a plugin for Nagios and similar monitoring. It checks the bucket, and that each election KEY has a leader. Without KEY
it checks only the elections that have a leader or are paused, so name each election that must have one.

Example: election-cli check scheduler --format nagios

Exit codes:

    0  OK         there are no warnings and no critical findings
    1  WARNING    leadership does not count yet, a renewal is overdue, an election is paused, or the configuration of the bucket can be improved
    2  CRITICAL   nobody leads, a lease has ended, two candidates claim to lead, or the bucket is unfit for elections
    3  UNKNOWN    the check failed, or wrong usage

Formats are text (for people, the default), nagios (one line with performance data), json, and prometheus (for the textfile
collector of the node exporter). Ages are by the server's clock. If the clock of this host differs from it by more than a second,
that is a finding of severity info.

With --json the result is one object: "status", "error" (if UNKNOWN), "bucket", "server", "ttl_s", "clock_ahead_s" (of this
host's clock), "elections" (as in 'ls --json') and "findings" (each with "key", "code", "severity", "message", "fix"). The codes are
those of the Go package admin, and

    no-leader, lease-over, two-leaders    critical
    leader-elect, renewal-overdue, paused warning
    clock-differs                         info

The codes that begin with expect- say how long failovers take, and which outage of the servers a leader survives, for candidates with
the interval --interval. If the crash of a server would depose leaders, the fix names a TTL and an interval that prevent it.

The check of the bucket tests the permissions of this connection. If the connection may only read, add --ignore write-refused. The
command writes nothing.`

// checkCommand implements check.
type checkCommand struct {
	*cli.Env
	checkup.Options
	format string
	json   bool

	formatSet, overdueSet bool
}

func registerCheck(app *fisk.Application, env *cli.Env) {
	c := &checkCommand{Env: env}
	cmd := app.Command("check", "Checks the bucket and its elections, for monitoring").HelpLong(checkHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "Elections that must have a leader, keys of the bucket").StringsVar(&c.Keys)
	cli.EnumVar(cmd.Flag("format", "Format of the result: text, nagios, json or prometheus").Default(checkup.FormatText).IsSetByUser(&c.formatSet),
		&c.format, checkup.FormatText, checkup.FormatNagios, checkup.FormatJSON, checkup.FormatPrometheus)
	cli.JSONVar(cmd, "Write the result as JSON, like --format json", &c.json)
	cli.DurationVar(cmd.Flag("grace", "How long to wait for a leader before its absence is reported").Default("0s"), &c.Grace)
	cli.DurationVar(cmd.Flag("overdue", "Age of a record from which its renewal is overdue (default 0.85 of the TTL)").IsSetByUser(&c.overdueSet), &c.Overdue)
	cli.IntervalVar(cmd, "Interval of the candidates, for the forecast of failovers and outages (default 0.75 of the TTL)", &c.Interval)
	cmd.Flag("ignore", "Ignore findings with this code; repeatable").PlaceHolder("CODE").StringsVar(&c.Ignore)
}

// check validates the command line before the command connects.
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

// run checks, writes the result, and returns the exit code of its status.
func (c *checkCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return c.unknown(err)
	}
	v, err := look.Open(ctx, c.Env, "check")
	if err != nil {
		return c.unknown(cli.InterruptedOr(ctx, err))
	}
	defer v.Conn.Close()
	result, err := c.Evaluate(ctx, v)
	if err != nil {
		return c.unknown(cli.InterruptedOr(ctx, err))
	}
	if err := result.Write(c.Stdout, c.format); err != nil {
		return err
	}
	if result.Status == checkup.StatusOK {
		return nil
	}
	return &cli.ExitError{Code: int(result.Status)}
}

// unknown writes an error in the wanted format to stdout, where monitoring reads it, and returns the exit code of UNKNOWN.
func (c *checkCommand) unknown(err error) error {
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

// isNagiosCheck reports whether a command line that could not be parsed asks for a check in the format of Nagios.
func isNagiosCheck(args []string) bool {
	if commandOf(args) != "check" {
		return false
	}
	for i, arg := range args {
		if arg == "--format="+checkup.FormatNagios || arg == "--format" && i+1 < len(args) && args[i+1] == checkup.FormatNagios {
			return true
		}
	}
	return false
}
