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
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/cli/terminal"
)

const fileHelp = `Campaigns for the key, and maintains a leader file at PATH on the host that leads. Programs on that host, such as cron jobs
and health checks, read the file instead of NATS. For example, in a crontab:

    election-cli file --check /run/leader.json && /usr/local/bin/nightly-job

The command writes the file when its leadership begins to count, and replaces the whole file at each renewal. It removes the
file before leadership ends: before the lease ends if the lease is not renewed, and before it releases the key if it is
interrupted (INT or TERM, exit code 0).

The file contains one JSON object: "marker" (always "election-cli"), "key", "bucket", "name", "term", "token" (the fencing
token), "since" (when the candidate won the key), "written", "expiry" and "ttl_s". Do not trust the file after its expiry: a
process that is stopped, or killed with kill -9, cannot remove it.

With --check PATH the command says whether the file is fresh, without connecting to a server. Exit codes:

    0   the file exists and is fresh
    1   the file is missing, empty, expired or from the future (the clock of this host was set back)
    2   the file cannot be read, or is not a leader file

With --check and --json the result is one object: "path", "fresh", "reason" (if the file is not fresh) and "marker" (the
content of the file, if it could be read).

When the command starts, it removes a leader file that an earlier process left at PATH. It refuses a symbolic link and any
other file, and leaves them as they are. The folder must exist; the lock file PATH.lock in it prevents a second process on
this host from using the same PATH. If the command cannot write or remove the file, it gives up leadership and exits with 2,
so that another host can lead.

The command writes the same events as 'election-cli campaign'. Unlike that it ignores ELECTION_WITNESS: a file that a killed
process leaves behind is fresh until its expiry, so no other host may lead before the lease is over.

` + cli.HealthHelp

// fileCommand is the command file: a campaign in which the work of the leader is to maintain a leader file.
type fileCommand struct {
	campaignCommand
	path, checkPath string
}

func registerFile(app *fisk.Application, t *cli.Env) {
	c := &fileCommand{campaignCommand: campaignCommand{Env: t, client: "file"}}
	cmd := app.Command("file", "Maintains a leader file on the host that leads, or checks the file").HelpLong(fileHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cmd.Arg("path", "Path of the leader file; its folder must exist").StringVar(&c.path)
	cmd.Flag("check", "Exit with 0 if the leader file at PATH is fresh, without connecting to a server").PlaceHolder("PATH").StringVar(&c.checkPath)
	cmd.Flag("name", "Name of this candidate (default HOST-PID, or HOST in Kubernetes and for process 1)").PlaceHolder("NAME").StringVar(&c.name)
	cli.JSONVar(cmd, "Write the events, or the result of --check, as JSON", &c.json)
	cmd.Flag("verbose", "Also log each campaign, each renewal and each write of the leader file").Short('v').UnNegatableBoolVar(&c.verbose)
	c.health.Register(cmd)
	cli.IntervalVar(cmd, intervalHelp, &c.interval)
	t.Connection.RegisterConnectTimeout(cmd)
}

// run checks a leader file, or maintains one until ctx ends.
func (c *fileCommand) run(ctx context.Context) error {
	switch {
	case c.checkPath != "" && (c.key != "" || c.name != ""):
		return errors.New("--check takes a path, and neither a key nor --name: election-cli file --check PATH")
	case c.checkPath != "":
		return c.checkFile(c.checkPath)
	case c.path == "":
		return errors.New("the key or the path is missing: give election-cli file KEY PATH, or election-cli file --check PATH")
	}
	release, err := leaderfile.Prepare(c.path)
	if err != nil {
		return err
	}
	defer release()
	c.work = c.maintain
	return c.campaignCommand.run(ctx)
}

// maintain returns the work of the leader.
func (c *fileCommand) maintain(e *election.Election, log *slog.Logger) func(context.Context, election.Term) error {
	m := leaderfile.NewMaintainer(c.path, c.key, c.Bucket, c.name, log)
	return func(ctx context.Context, term election.Term) error { return m.Lead(ctx, term, e.Status().TTL) }
}

// checkFile says by its exit code whether the leader file at path is fresh by the clock of this host.
func (c *fileCommand) checkFile(path string) error {
	result, err := leaderfile.Check(path, time.Now())
	if err != nil {
		return fmt.Errorf("--check %s: %w", path, err)
	}
	if c.json {
		if err := terminal.WriteJSON(c.Stdout, result); err != nil {
			return err
		}
	}
	if result.Fresh {
		return nil
	}
	return cli.Negative("the leader file %s is not fresh: %s", path, result.Reason)
}
