package main

import (
	"context"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
)

const pauseHelp = `Its leader leads on, but nobody new campaigns, not even those that start later: if the leader stops or fails, the election stays
without one until 'election-cli resume KEY'. The mark stands in the metadata of the stream behind the bucket and does not
expire; to write it takes permission to update that stream, and to tell candidates of it at once takes permission to publish to
election-control.BUCKET.look.KEY.

Exit codes: 0 it is paused; 2 wrong usage or any other error.`

const resumeHelp = `It undoes 'election-cli pause KEY': candidates campaign again, within seconds if nobody leads.

Exit codes: 0 it is not paused; 2 wrong usage or any other error.`

// pauser is the command pause, or resume.
type pauser struct {
	*tool
	key string
	do  func(*election.Observer, context.Context, string) error
	say string
}

func registerPause(app *fisk.Application, t *tool) {
	for _, c := range []struct {
		name, short, help string
		pauser            *pauser
	}{
		{"pause", "Keeps everybody from campaigning in an election", pauseHelp,
			&pauser{tool: t, do: (*election.Observer).Pause, say: "paused: its leader leads on, nobody new campaigns"}},
		{"resume", "Lets candidates campaign again", resumeHelp,
			&pauser{tool: t, do: (*election.Observer).Resume, say: "not paused"}},
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
	o := view.observer
	if err := p.do(o, ctx, p.key); err != nil {
		return stopped(ctx, tidy(err))
	}
	_, err = fmt.Fprintf(p.stdout, "%s is %s\n", p.key, p.say)
	return err
}
