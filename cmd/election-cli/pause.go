package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/validate"
)

const pauseHelp = `The leader keeps leading, but no candidate campaigns, not even a candidate that starts later. If the leader stops or fails, the
election has no leader until 'election-cli resume KEY'. The pause does not expire. It is stored in the metadata of the stream
behind the bucket, so the command needs permission to update that stream and, to notify candidates at once, permission to publish
to election-control.BUCKET.refresh.KEY and to subscribe to election-answers.BUCKET.*.KEY. If nobody leads the election and no candidate answers, the command asks first: the key may
be misspelt. In a bucket for sessions the command does nothing: only the processes pause their elections.

Example: election-cli pause scheduler

Exit codes: 0 if the election is paused; 1 if you answered no; 2 for wrong usage and any other error.`

const resumeHelp = `The command ends the pause of 'election-cli pause KEY'. If nobody leads, candidates campaign again within seconds.

Example: election-cli resume scheduler

Exit codes: 0 if the election is not paused; 2 for wrong usage and any other error.`

// pauseCommand implements pause and resume.
type pauseCommand struct {
	*cli.Env
	key   string
	force bool
}

func registerPause(app *fisk.Application, env *cli.Env) {
	c := &pauseCommand{Env: env}
	pause := app.Command("pause", "Stops all candidates of an election from campaigning").HelpLong(pauseHelp).Action(cli.Request(c.pause))
	cli.ForceVar(pause, "Do not ask", &c.force)
	resume := app.Command("resume", "Lets candidates campaign again").HelpLong(resumeHelp).Action(cli.Request(c.resume))
	for _, cmd := range []*fisk.CmdClause{pause, resume} {
		cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	}
}

// pause pauses the election.
func (p *pauseCommand) pause(ctx context.Context) error {
	return p.change(ctx, "pause", func(v *look.View) error {
		if err := p.confirm(ctx, v); err != nil {
			return err
		}
		_, unled := v.Leader(ctx, p.key)
		if err := v.Admin.Pause(ctx, p.key); err != nil {
			return err
		}
		leader := "its leader keeps leading"
		if errors.Is(unled, election.ErrNoLeader) {
			leader = "nobody leads it"
		}
		_, err := fmt.Fprintf(p.Stdout, "%q is paused: %s, and no candidate campaigns\n", p.key, leader)
		return err
	})
}

// resume ends a pause.
func (p *pauseCommand) resume(ctx context.Context) error {
	return p.change(ctx, "resume", func(v *look.View) error {
		_, unled := v.Leader(ctx, p.key)
		if err := v.Admin.Resume(ctx, p.key); err != nil {
			return err
		}
		result := "was not paused"
		if v.IsPaused(p.key) {
			result = "is resumed: its candidates campaign again"
			if errors.Is(unled, election.ErrNoLeader) {
				result += fmt.Sprintf(". Nobody leads: the winner stands down first, for up to %v, unless the last leader released the key", v.TTL())
				if !v.Remembers() {
					result += " less than that ago"
				}
			}
		}
		_, err := fmt.Fprintf(p.Stdout, "%q %s\n", p.key, result)
		return err
	})
}

// change opens the bucket and changes the election.
func (p *pauseCommand) change(ctx context.Context, command string, do func(*look.View) error) error {
	if err := validate.Key(p.key); err != nil {
		return err
	}
	v, err := look.Open(ctx, p.Env, command)
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	return do(v)
}

// confirm asks the user if nothing shows that the election exists. What cannot be found out, for want of permission, is no reason to ask.
func (p *pauseCommand) confirm(ctx context.Context, v *look.View) error {
	if v.IsPaused(p.key) || v.ForSessions() { // which refuses it
		return nil
	}
	if _, err := v.Leader(ctx, p.key); !errors.Is(err, election.ErrNoLeader) {
		return nil
	}
	if candidates, err := v.Admin.Candidates(ctx, p.key); err != nil || len(candidates) > 0 {
		return nil
	}
	return p.Confirm(ctx, p.force, fmt.Sprintf("Nobody leads %[1]s, and no candidate answers for it. Pause %[1]s all the same?", terminal.Quote(p.key)))
}
