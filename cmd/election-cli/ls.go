package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/choria-io/fisk"
)

const lsHelp = `With --json the result is a list of objects: ` + holderHelp + `.

Without a terminal the columns are separated by tabs, and there is no header: election, leader, state, since, term, last
renewal, time left, host. Elections that nobody holds are left out, and so are keys that hold other things, such as the plan
of a group. The exit code is 0, also when there are none.`

// ls is the command of that name.
type ls struct {
	*tool
	json bool
}

func registerLs(app *fisk.Application, t *tool) {
	c := &ls{tool: t}
	cmd := app.Command("ls", "Lists the elections of the bucket with their leaders").Alias("list").HelpLong(lsHelp).Action(action(c.run))
	cmd.Flag("json", "Write the elections as JSON").UnNegatableBoolVar(&c.json)
}

// run lists the elections.
func (c *ls) run(ctx context.Context) error {
	v, err := c.look(ctx, "ls")
	if err != nil {
		return stopped(ctx, err)
	}
	defer v.nc.Close()
	elections, err := v.leaders(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	if c.json {
		return writeJSON(c.stdout, elections)
	}
	if len(elections) == 0 {
		fmt.Fprintf(c.stderr, "Nobody leads in bucket %s on %s\n", v.bucket.Bucket(), v.server())
		return nil
	}
	return electionsGrid(v, elections).writeTo(c.stdout)
}

// electionsGrid returns elections as a table.
func electionsGrid(v *view, elections []holder) *grid {
	g := &grid{
		title:  fmt.Sprintf("Elections in bucket %s", v.bucket.Bucket()),
		header: []string{"Election", "Leader", "State", "Since", "Term", "Renewed", "Time left", "Host"},
	}
	now := v.clock.now()
	for _, s := range elections {
		g.add(s.Key, s.Name, s.State, cmp.Or(s.since(now), "-"), termOf(s.Term), ago(s.age), s.remaining(), cmp.Or(s.Host, "-"))
	}
	return g
}

// termOf returns the number of a term, or - for none.
func termOf(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// stopped returns the verdict on a command that was interrupted before it had a result, or else err.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return &verdict{exitInterrupted, "interrupted"}
	}
	return err
}

// inDoubt returns the error of a request that may have been carried out although err is all that came of it, or the
// verdict on a command that was interrupted meanwhile. Either says what is not known.
func inDoubt(ctx context.Context, err error, format string, a ...any) error {
	what := fmt.Sprintf(format, a...)
	if ctx.Err() != nil {
		return &verdict{exitInterrupted, "interrupted: " + what}
	}
	return fmt.Errorf("%s: %w", what, err)
}
