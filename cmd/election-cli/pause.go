package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
)

const pauseHelp = `The leader keeps leading, but no candidate campaigns, not even a candidate that starts later. If the leader stops or fails, the
election has no leader until 'election-cli resume KEY'. The pause does not expire. It is stored in the metadata of the stream
behind the bucket, so the command needs permission to update that stream and, to notify candidates at once, permission to publish
to election-control.BUCKET.refresh.KEY.

Example: election-cli pause scheduler

Exit codes: 0 if the election is paused; 2 for wrong usage and any other error.`

const resumeHelp = `The command ends the pause of 'election-cli pause KEY'. If nobody leads, candidates campaign again within seconds.

Example: election-cli resume scheduler

Exit codes: 0 if the election is not paused; 2 for wrong usage and any other error.`

// pauseCommand implements pause and resume.
type pauseCommand struct {
	*cli.Env
	name  string
	key   string
	set   func(*admin.Admin, context.Context, string) error
	state string // after the command
}

func registerPause(app *fisk.Application, env *cli.Env) {
	for _, c := range []struct {
		short, help string
		command     *pauseCommand
	}{
		{"Stops all candidates of an election from campaigning", pauseHelp,
			&pauseCommand{Env: env, name: "pause", set: (*admin.Admin).Pause, state: "paused: its leader keeps leading, and no candidate campaigns"}},
		{"Lets candidates campaign again", resumeHelp,
			&pauseCommand{Env: env, name: "resume", set: (*admin.Admin).Resume, state: "not paused"}},
	} {
		cmd := app.Command(c.command.name, c.short).HelpLong(c.help).Action(cli.Action(c.command.run))
		cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.command.key)
	}
}

// run pauses or resumes the election.
func (p *pauseCommand) run(ctx context.Context) error {
	v, err := look.Open(ctx, p.Env, p.name)
	if err != nil {
		return cli.InterruptedOr(ctx, err)
	}
	defer v.Conn.Close()
	if err := p.set(v.Admin, ctx, p.key); err != nil {
		return cli.InterruptedOr(ctx, cli.AsFlagError(err))
	}
	_, err = fmt.Fprintf(p.Stdout, "%s is %s\n", p.key, p.state)
	return err
}
