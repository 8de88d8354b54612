package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
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

// grade is how well things are, as plugins for monitoring tell it by their exit codes.
type grade int

const (
	gradeOK grade = iota
	gradeWarning
	gradeCritical
	gradeUnknown
)

// String returns "OK", "WARNING", "CRITICAL" or "UNKNOWN".
func (g grade) String() string { return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[g] }

// MarshalText returns what String does.
func (g grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// Formats of a check.
const (
	formatText       = "text"
	formatNagios     = "nagios"
	formatJSON       = "json"
	formatPrometheus = "prometheus"
)

// gracePoll is how often it is looked again while a leader is given time to appear.
const gracePoll = 250 * time.Millisecond

// checkup is the command check.
type checkup struct {
	*tool
	keys           []string
	format         string
	json           bool
	ignore         []string
	grace, overdue time.Duration

	formatSet, overdueSet bool
}

func registerCheck(app *fisk.Application, t *tool) {
	c := &checkup{tool: t}
	cmd := app.Command("check", "Checks bucket and elections, for monitoring").HelpLong(checkHelp).Action(action(c.run))
	cmd.Arg("key", "The elections that must have a leader, keys of the bucket").StringsVar(&c.keys)
	cmd.Flag("format", "How to write the result: text, nagios, json or prometheus").Default(formatText).IsSetByUser(&c.formatSet).
		EnumVar(&c.format, formatText, formatNagios, formatJSON, formatPrometheus)
	cmd.Flag("json", "The same as --format json").UnNegatableBoolVar(&c.json)
	cmd.Flag("grace", "How long to wait for a leader before its absence is reported").PlaceHolder("DURATION").DurationVar(&c.grace)
	cmd.Flag("overdue", "Age of a record from which its renewal is overdue (default 0.85 of the TTL)").PlaceHolder("DURATION").IsSetByUser(&c.overdueSet).DurationVar(&c.overdue)
	cmd.Flag("ignore", "Leave out the findings of that code; may be repeated").PlaceHolder("CODE").StringsVar(&c.ignore)
}

// check finds what is wrong with the command line before anything is begun.
func (c *checkup) check() error {
	var problems []error
	for _, key := range c.keys {
		problems = append(problems, checkKey(key, false))
	}
	if c.json && c.formatSet && c.format != formatJSON {
		problems = append(problems, fmt.Errorf("--json and --format %s exclude each other: give one of them", c.format))
	}
	if c.json {
		c.format = formatJSON
	}
	if c.grace < 0 {
		problems = append(problems, fmt.Errorf("--grace %v: give a positive duration such as 5s", c.grace))
	}
	if c.overdueSet && c.overdue <= 0 {
		problems = append(problems, fmt.Errorf("--overdue %v: give a positive duration such as 25s, or leave it out for 0.85 of the TTL", c.overdue))
	}
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
	return errors.Join(problems...)
}

// run judges, tells, and ends with the exit code that says so.
func (c *checkup) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return c.unknown(err)
	}
	a, err := c.assess(ctx)
	if err != nil {
		return c.unknown(stopped(ctx, err))
	}
	if err := c.write(a); err != nil {
		return err
	}
	if a.Status == gradeOK {
		return nil
	}
	return &verdict{code: int(a.Status)}
}

// unknown tells of an error in the format that is asked for, on stdout where monitoring looks for it.
func (c *checkup) unknown(err error) error {
	a := &assessment{Status: gradeUnknown, Error: printableUpTo(err.Error(), longestValue), Bucket: printable(c.bucket), Elections: []holder{}, Findings: []remark{}}
	switch c.format {
	case formatNagios:
		if c.write(a) == nil {
			return &verdict{code: int(gradeUnknown)}
		}
	case formatJSON, formatPrometheus:
		err = errors.Join(err, c.write(a))
	}
	return &verdict{int(gradeUnknown), err.Error()}
}

// assess finds out how things are.
func (c *checkup) assess(ctx context.Context) (*assessment, error) {
	v, err := c.look(ctx, "check")
	if err != nil {
		return nil, err
	}
	defer v.nc.Close()
	findings, err := v.findings(ctx)
	if err != nil {
		return nil, err
	}
	patience := time.Now().Add(c.grace)
	for {
		a, err := c.glance(ctx, v)
		if err != nil {
			return nil, err
		}
		if left := time.Until(patience); a.vacant() && left > 0 {
			if err := pause(ctx, min(left, gracePoll)); err != nil {
				return nil, err
			}
			continue
		}
		for _, f := range findings {
			a.Findings = append(a.Findings, remark{Finding: f})
		}
		a.settle(c.ignore)
		return a, nil
	}
}

// glance returns what is to be said of the elections, and of the clocks, as they are now.
func (c *checkup) glance(ctx context.Context, v *view) (*assessment, error) {
	if err := v.refresh(ctx); err != nil {
		return nil, err
	}
	a := &assessment{Bucket: v.bucket.Bucket(), Server: v.server(), TTLS: v.ttl().Seconds(), Elections: []holder{}, named: c.keys}
	if v.clock.told {
		ahead := roundMS(v.clock.ahead())
		a.ClockAheadS = &ahead
	}
	a.overdue = v.ttl() * overduePart / 100
	if c.overdueSet {
		a.overdue = c.overdue
	}
	if err := c.find(ctx, v, a); err != nil {
		return nil, err
	}
	asked := slices.Clone(c.keys)
	for _, e := range a.Elections {
		if !slices.Contains(asked, e.Key) {
			asked = append(asked, e.Key)
		}
	}
	a.Findings = append(a.Findings, judgeClaims(v.claims(ctx, asked))...)
	a.Findings = append(a.Findings, judgeClock(v.clock)...)
	return a, nil
}

// find reads who leads, and judges it.
func (c *checkup) find(ctx context.Context, v *view, a *assessment) error {
	if len(c.keys) == 0 {
		var err error
		if a.Elections, err = v.leaders(ctx); err != nil {
			return err
		}
		for i := range a.Elections {
			a.Findings = append(a.Findings, judge(a.Elections[i].Key, &a.Elections[i], v.ttl(), a.overdue)...)
		}
		return nil
	}
	for _, key := range c.keys {
		leader, err := v.leader(ctx, key)
		if err != nil && !errors.Is(err, election.ErrNoLeader) {
			return err
		}
		if leader != nil {
			a.Elections = append(a.Elections, *leader)
		}
		a.Findings = append(a.Findings, judge(key, leader, v.ttl(), a.overdue)...)
	}
	return nil
}
