package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/admin"
)

const pauseHelp = `The leader leads on, but no candidate campaigns, not even a candidate that starts later: if the leader stops or fails, the
election has no leader until 'election-cli resume KEY'. The pause is stored in the metadata of the stream behind the bucket, and
does not expire. It takes permission to update that stream and, to notify candidates of it at once, permission to publish to
election-control.BUCKET.refresh.KEY.

Exit codes: 0 it is paused; 2 wrong usage or any other error.`

const resumeHelp = `It undoes 'election-cli pause KEY': candidates campaign again, within seconds if nobody leads.

Exit codes: 0 it is not paused; 2 wrong usage or any other error.`

// pauser is the command pause, or resume.
type pauser struct {
	*tool
	key string
	do  func(*admin.Admin, context.Context, string) error
	say string
}

func registerPause(app *fisk.Application, t *tool) {
	for _, c := range []struct {
		name, short, help string
		pauser            *pauser
	}{
		{"pause", "Keeps all candidates of an election from campaigning", pauseHelp,
			&pauser{tool: t, do: (*admin.Admin).Pause, say: "paused: its leader leads on, no candidate campaigns"}},
		{"resume", "Lets candidates campaign again", resumeHelp,
			&pauser{tool: t, do: (*admin.Admin).Resume, say: "not paused"}},
	} {
		cmd := app.Command(c.name, c.short).HelpLong(c.help).Action(action(c.pauser.run))
		cmd.Arg("key", "The election").Required().StringVar(&c.pauser.key)
	}
}

// run pauses the election, or resumes it.
func (p *pauser) run(ctx context.Context) error {
	view, err := p.look(ctx, "pause")
	if err != nil {
		return stopped(ctx, err)
	}
	defer view.nc.Close()
	if err := p.do(view.admin, ctx, p.key); err != nil {
		return stopped(ctx, tidy(err))
	}
	_, err = fmt.Fprintf(p.stdout, "%s is %s\n", p.key, p.say)
	return err
}
