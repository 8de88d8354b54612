package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/leaderfile"
	"github.com/natscampaign/election/internal/terminal"
)

const fileHelp = `It campaigns, and keeps a marker, a file, on the host that leads: cron jobs and health checks there need no
NATS to know. The marker is written when leadership counts, replaced as a whole at each renewal, and removed before
leadership ends: before the lease runs out if it is not renewed, and before the key is released if it is interrupted
(INT or TERM, exit code 0).

The marker is one JSON object: "marker" (always "election-cli"), "key", "bucket", "name", "term", "token" (the fencing
token), "since" (when the key was won), "written", "expiry" and "ttl_s". Trust it until its expiry and no longer: after
a kill -9, or while the process is stopped, it stays where it is. With --check this tool says whether it counts, and asks
no server:

    election-cli file --check /run/leader.json && do-what-only-the-leader-does

Exit codes of --check: 0 the marker is there and fresh; 1 it is missing, has expired, or comes from the future (the clock
was set back); 2 it cannot be read, or is none. With --json the verdict is written as JSON: "path", "fresh", "reason" (if
it is not) and "marker" (if there is one).

A marker that was left behind is removed at the start. Any other file at PATH is refused and left as it is, as is a
symbolic link. The folder must exist; PATH.lock there keeps a second process on this host from the same PATH. A marker
that cannot be written ends leadership, and the command with exit code 2, so that another host can lead.

Events are written as by 'election-cli campaign'.`

// fileCommand is the command file: a campaign whose work is to keep a marker.
type fileCommand struct {
	campaignCommand
	path, checked string
}

func registerFile(app *fisk.Application, t *cli.Env) {
	c := &fileCommand{campaignCommand: campaignCommand{Env: t, client: "file"}}
	cmd := app.Command("file", "Keeps a file on the host that leads, or checks it").HelpLong(fileHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cmd.Arg("path", "The marker, a file in a folder that exists").StringVar(&c.path)
	cmd.Flag("check", "Exit with 0 if the marker at PATH is fresh, without asking a server").PlaceHolder("PATH").StringVar(&c.checked)
	cmd.Flag("name", "Name of this candidate (default HOST-PID-UNIQUE)").PlaceHolder("NAME").StringVar(&c.name)
	cmd.Flag("json", "Write events, or the verdict, as JSON").UnNegatableBoolVar(&c.json)
	cmd.Flag("verbose", "Log each campaign, renewal and marker as well").Short('v').UnNegatableBoolVar(&c.verbose)
}

// run checks a marker, or keeps one until ctx ends.
func (c *fileCommand) run(ctx context.Context) error {
	switch {
	case c.checked != "" && (c.key != "" || c.name != ""):
		return errors.New("--check takes the marker and nothing else: election-cli file --check PATH")
	case c.checked != "":
		return c.check(c.checked)
	case c.path == "":
		return errors.New("give the election and the marker: election-cli file KEY PATH, or election-cli file --check PATH")
	}
	release, err := leaderfile.Prepare(c.path)
	if err != nil {
		return err
	}
	defer release()
	c.work = c.keep
	return c.campaignCommand.run(ctx)
}

// keep returns the work of a leader.
func (c *fileCommand) keep(e *election.Election, log *slog.Logger) func(context.Context, election.Term) error {
	k := leaderfile.NewKeeper(c.path, c.key, c.Bucket, c.name, log)
	return func(ctx context.Context, term election.Term) error { return k.Lead(ctx, term, e.Status().TTL) }
}

// check judges the marker at path by this host's clock.
func (c *fileCommand) check(path string) error {
	v, err := leaderfile.Check(path, time.Now())
	if err != nil {
		return fmt.Errorf("--check %s: %w", path, err)
	}
	if c.json {
		if err := terminal.WriteJSON(c.Stdout, v); err != nil {
			return err
		}
	}
	if v.Fresh {
		return nil
	}
	return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf("%s does not count: %s", path, v.Reason)}
}
