package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

const lsHelp = `With --json the result is a list of objects: ` + look.HolderHelp + `.

Without a terminal the columns are separated by tabs, and there is no header: election, leader, state, since, term, last
renewal, time left, host. Elections that nobody holds are left out, and so are keys that hold other things, such as the plan
of a group. The exit code is 0, also when there are none.`

// lsCommand is the command of that name.
type lsCommand struct {
	*cli.Env
	json bool
}

func registerLs(app *fisk.Application, t *cli.Env) {
	c := &lsCommand{Env: t}
	cmd := app.Command("ls", "Lists the elections of the bucket with their leaders").Alias("list").HelpLong(lsHelp).Action(cli.Action(c.run))
	cmd.Flag("json", "Write the elections as JSON").UnNegatableBoolVar(&c.json)
}

// run lists the elections.
func (c *lsCommand) run(ctx context.Context) error {
	v, err := look.Open(ctx, c.Env, "ls")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer v.Conn.Close()
	elections, err := v.Leaders(ctx)
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	if c.json {
		return terminal.WriteJSON(c.Stdout, elections)
	}
	if len(elections) == 0 {
		fmt.Fprintf(c.Stderr, "Nobody leads in bucket %s on %s\n", v.Bucket.Bucket(), v.ServerURL())
		return nil
	}
	return look.Table(v, elections).Print(c.Stdout)
}
