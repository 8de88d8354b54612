package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
)

const candidatesHelp = `Each candidate reports its name and host, whether it leads, whether it is ready to take over (it would receive a notification
of a vacancy now, and campaign, and its last write did not fail), its priority, the version of the library, and how far its clock is behind the server's clock
(negative: ahead). The clock difference is uncertain by half the round trip to the candidate.

Example: election-cli candidates scheduler

Only candidates that use this library and know their connection answer; the candidates of this command do. They are a NATS
micro service named "election", which 'nats micro ls' lists too. The request needs permission to publish to
election-control.BUCKET.candidates.KEY, and to subscribe to election-answers.BUCKET.*.KEY.

With --json the result is an array of objects with "name", "instance", "host", "pid", "state", "ready", "standby" (whether it
would take over, now or with its next campaign; left out for locks, slots, keys of groups and 'run --no-wait'), "priority",
"version", "clock_lag_s", "last_error" (of its requests, until one of that kind succeeds), "last_error_age_s", and "connection" (of
its process, as the server calls it: CLIENT@SERVER). A copy of a process, as of a virtual machine that was cloned, differs from the process in nothing else. Without a
terminal, the columns of the table are separated by tabs.

Exit codes: 0 if a candidate answers; 1 if none answers; 2 for wrong usage and any other error.`

// candidatesCommand implements candidates.
type candidatesCommand struct {
	*cli.Env
	key  string
	json bool
	wide bool
}

func registerCandidates(app *fisk.Application, env *cli.Env) {
	c := &candidatesCommand{Env: env}
	cmd := app.Command("candidates", "Lists the candidates that answer").HelpLong(candidatesHelp).Action(cli.Request(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cli.JSONVar(cmd, "Write the result as JSON", &c.json)
	cli.WideVar(cmd, &c.wide)
}

// run asks the candidates, and names a leader that does not answer.
func (c *candidatesCommand) run(ctx context.Context) error {
	v, err := look.Open(ctx, c.Env, "candidates")
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	found, err := v.Admin.Candidates(ctx, c.key)
	if err != nil {
		return err
	}
	if err := c.write(found); err != nil {
		return err
	}
	leader, err := v.Observer.Leader(ctx, c.key)
	if err != nil && !errors.Is(err, election.ErrNoLeader) {
		return err
	}
	answers := slices.ContainsFunc(found, func(f admin.Candidate) bool { return f.Instance == leader.Instance })
	if leader.Name != "" && !answers {
		fmt.Fprintf(c.Stderr, "%s holds the key, but does not answer\n", terminal.Quote(leader.Name))
	}
	if len(found) == 0 {
		return cli.Negative("no candidate answers in %s; %s says why", terminal.Quote(c.key), c.NameCommand("check "+c.key))
	}
	return nil
}

// write writes the candidates as a table or as JSON.
func (c *candidatesCommand) write(found []admin.Candidate) error {
	candidates, table := look.CandidatesOf(c.key, found)
	switch {
	case c.json:
		return terminal.WriteJSON(c.Stdout, candidates)
	case len(found) == 0:
		return nil
	}
	return table.Print(c.Stdout, terminal.StyleFor(c.Stdout).Wide(c.wide))
}
