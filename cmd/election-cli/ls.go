package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
)

const lsHelp = `The command lists each election that has a leader, and each that is paused. It leaves out other keys without a holder, and keys with
other data, such as the plan of a group. The exit code is 0, even if there are no elections.

In a bucket for sessions each key that a session leads is an election. It was renewed when its session was.

Example: election-cli ls --json

With --json the result is an array of objects: ` + look.HolderHelp + `.

With --ended the command lists the elections that have ended instead: who led last, until when, and why that ended. A bucket that remembers releases
keeps them until the next win, or until 'bucket prune'; others for the TTL. Of a leader that crashed nothing is kept. With --json the result is then
an array of the events of 'watch --json'. Without a terminal the columns are: election, last leader, ended, why, term, host.

On a narrow terminal the columns that matter least are left out; --wide shows them. Without a terminal there is no header, and the columns are separated by tabs: election, leader, state, since, term, last renewal,
time left, host, standbys.

The command asks the candidates of each election how many would take over if the leader stopped, for three seconds at most. A dash stands where no candidate answers,
where this user may not ask, and where no standby is needed: for locks, slots, keys of groups and 'run --no-wait'.`

// lsCommand implements ls.
type lsCommand struct {
	*cli.Env
	json, wide, ended bool
}

func registerLs(app *fisk.Application, env *cli.Env) {
	c := &lsCommand{Env: env}
	cmd := app.Command("ls", "Lists the elections of the bucket with their leaders").Alias("list").HelpLong(lsHelp).Action(cli.Request(c.run))
	cli.JSONVar(cmd, "Write the elections as JSON", &c.json)
	cli.WideVar(cmd, &c.wide)
	cmd.Flag("ended", "List the elections that have ended, with their last leaders").UnNegatableBoolVar(&c.ended)
}

// run lists the elections.
func (c *lsCommand) run(ctx context.Context) error {
	v, err := look.Open(ctx, c.Env, "ls")
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	if c.ended {
		return c.listEnded(ctx, v)
	}
	elections, err := v.Leaders(ctx)
	if err != nil {
		return err
	}
	v.CountStandbys(ctx, elections)
	elections = append(elections, v.PausedVacancies(elections)...)
	if c.json {
		return terminal.WriteJSON(c.Stdout, elections)
	}
	if len(elections) == 0 {
		fmt.Fprintf(c.Stderr, "Nobody leads in bucket %q on %s%s\n", v.Bucket.Bucket(), v.ServerURL(), c.endedHint(ctx, v))
		return nil
	}
	return look.ElectionTable(v, elections).Print(c.Stdout, terminal.StyleFor(c.Stdout).Wide(c.wide))
}

// endedHint says how many elections have ended, and how to list them; empty if there are none.
func (c *lsCommand) endedHint(ctx context.Context, v *look.View) string {
	ended, err := v.Ended(ctx)
	if err != nil || len(ended) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s lists %s", c.NameCommand("ls --ended"), terminal.Plural(len(ended), "ended election"))
}

// listEnded lists the elections that have ended.
func (c *lsCommand) listEnded(ctx context.Context, v *look.View) error {
	ended, err := v.Ended(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return terminal.WriteJSON(c.Stdout, ended)
	}
	if len(ended) == 0 {
		fmt.Fprintf(c.Stderr, "No election in bucket %q on %s is known to have ended\n", v.Bucket.Bucket(), v.ServerURL())
		return nil
	}
	return look.EndedTable(v, ended).Print(c.Stdout, terminal.StyleFor(c.Stdout).Wide(c.wide))
}
