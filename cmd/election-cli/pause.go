package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
)

const pauseHelp = `The leader leads on, but no candidate campaigns, not even a candidate that starts later: if the leader stops or fails, the
election has no leader until 'election-cli resume KEY'. The pause is stored in the metadata of the stream behind the bucket, and
does not expire. It takes permission to update that stream and, to notify candidates of it at once, permission to publish to
election-control.BUCKET.refresh.KEY.

Exit codes: 0 it is paused; 2 wrong usage or any other error.`

const resumeHelp = `It undoes 'election-cli pause KEY': candidates campaign again, within seconds if nobody leads.

Exit codes: 0 it is not paused; 2 wrong usage or any other error.`

// pauseCommand is the command pause, or resume.
type pauseCommand struct {
	*cli.Env
	key string
	do  func(*admin.Admin, context.Context, string) error
	say string
}

func registerPause(app *fisk.Application, t *cli.Env) {
	for _, c := range []struct {
		name, short, help string
		pauser            *pauseCommand
	}{
		{"pause", "Keeps all candidates of an election from campaigning", pauseHelp,
			&pauseCommand{Env: t, do: (*admin.Admin).Pause, say: "paused: its leader leads on, no candidate campaigns"}},
		{"resume", "Lets candidates campaign again", resumeHelp,
			&pauseCommand{Env: t, do: (*admin.Admin).Resume, say: "not paused"}},
	} {
		cmd := app.Command(c.name, c.short).HelpLong(c.help).Action(cli.Action(c.pauser.run))
		cmd.Arg("key", "The election").Required().StringVar(&c.pauser.key)
	}
}

// run pauses the election, or resumes it.
func (p *pauseCommand) run(ctx context.Context) error {
	view, err := look.Open(ctx, p.Env, "pause")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer view.Conn.Close()
	if err := p.do(view.Admin, ctx, p.key); err != nil {
		return cli.OrInterrupted(ctx, cli.InFlags(err))
	}
	_, err = fmt.Fprintf(p.Stdout, "%s is %s\n", p.key, p.say)
	return err
}
