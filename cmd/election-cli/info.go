package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/validate"
)

const (
	infoHelp = `Without KEY the command describes the bucket: its replicas, the leader of each election, and each problem with its fix. It tests no
permissions but those to read: see 'election-cli check --as candidate'. The command writes nothing.

Example: election-cli info scheduler

Without KEY, --json writes one object: ` + look.BucketHelp + `.

With KEY the command describes one election, and --json writes one object: "key", "bucket", "ended" (how the last term ended, if
nobody leads and that is known, as in 'ls --ended --json'), and "leader", which is null or an object: ` + look.HolderHelp + `.

Times are by the server's clock, except "since", "leads_since" and "started", which are by the leader's clock. The exit code is 1 if nobody leads
the election KEY or, without KEY, if elections do not work in this bucket or are not safe.`

	bucketInfoHelp = `The description has the bucket's replicas, the leader of each election, and each problem with its fix. It tests no permissions but those
to read: see 'election-cli check --as candidate'. The command writes nothing.

Example: election-cli bucket info --bucket TEST_ELECTION

With --json the result is one object: ` + look.BucketHelp + `.

Times are by the server's clock, except "since", "leads_since" and "started", which are by the leader's clock. The exit code is 1 if elections do not
work in this bucket or are not safe.`
)

// infoCommand implements info and bucket info.
type infoCommand struct {
	*cli.Env
	key  string
	json bool
	wide bool
}

func registerInfo(app *fisk.Application, env *cli.Env) {
	c := &infoCommand{Env: env}
	cmd := app.Command("info", "Describes the bucket, or one election").HelpLong(infoHelp).Action(cli.Request(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cli.JSONVar(cmd, "Write the result as JSON", &c.json)
	cli.WideVar(cmd, &c.wide)
}

// run describes the bucket or the election.
func (c *infoCommand) run(ctx context.Context) error {
	if c.key != "" {
		if err := validate.Key(c.key); err != nil {
			return err
		}
	}
	v, err := look.Open(ctx, c.Env, "info")
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	if c.key == "" {
		return c.describeBucket(ctx, v)
	}
	return c.describeElection(ctx, v)
}

// describeElection describes one election.
func (c *infoCommand) describeElection(ctx context.Context, v *look.View) error {
	leader, err := v.Leader(ctx, c.key)
	vacant := errors.Is(err, election.ErrNoLeader)
	if err != nil && !vacant {
		return err
	}
	if !vacant {
		alone := []look.Holder{*leader}
		v.CountStandbys(ctx, alone)
		v.ConfirmAlone(ctx, alone)
		leader = &alone[0]
	}
	if c.json {
		info := look.ElectionInfo{Key: c.key, Bucket: v.Bucket.Bucket(), Leader: leader, Paused: v.IsPaused(c.key)}
		if e, known := v.LastEnd(ctx, c.key); vacant && known {
			info.Ended = &e
		}
		err = terminal.WriteJSON(c.Stdout, info)
	} else if !vacant {
		err = leader.Print(c.Stdout, terminal.StyleFor(c.Stdout), v)
	} else {
		err = nil
	}
	if err == nil && vacant {
		return v.NobodyLeads(ctx, c.key)
	}
	return err
}

// describeBucket describes the bucket.
func (c *infoCommand) describeBucket(ctx context.Context, v *look.View) error {
	b, err := v.BucketInfo(ctx)
	if err != nil {
		return err
	}
	st := terminal.StyleFor(c.Stdout).Wide(c.wide)
	if c.json {
		err = terminal.WriteJSON(c.Stdout, b)
	} else if err = b.Print(c.Stdout, st, v); err == nil {
		_, err = fmt.Fprint(c.Stdout, look.FindingsText(st, b.Findings, admin.SeverityWarning))
	}
	if err == nil && b.Unfit() {
		return &cli.ExitError{Code: cli.ExitNegative}
	}
	return err
}
