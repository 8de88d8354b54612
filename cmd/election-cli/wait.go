package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/observe"
)

const waitHelp = `The command ends as soon as a candidate leads and its leadership counts; with --leader, as soon as NAME leads; with --vacant, as soon
as the key has no holder, even for a moment. A bare name, which candidates of Choria write, counts as a leader at its next renewal.
An unreachable server and a permission that is missing are errors at once; with --connect-timeout the command waits that long for
the server. If the connection is lost later, the command goes on waiting.

Example: election-cli wait scheduler --leader web-1 --max-wait 30s

The result is a line on stdout. With --json it is one object: "key", "bucket", and "leader", which is null or has the fields of
'info KEY --json'.

Exit codes: 0 if the condition holds; 124 if it does not hold within --max-wait, like timeout(1); 130 if interrupted; 2 for wrong
usage and any other error, also if the condition is not known at the end of --max-wait because there is no connection. Without --max-wait, a --timeout on the command line is the limit.`

// waitCommand implements wait.
type waitCommand struct {
	*cli.Env
	key, leader string
	vacant      bool
	maxWait     time.Duration
	json        bool

	leaderSet, maxWaitSet bool

	following atomic.Pointer[cli.Client] // the connection, once the key is observed
	pause     string                     // what keeps candidates from campaigning, since before following is set; empty if nothing does
}

func registerWait(app *fisk.Application, env *cli.Env) {
	c := &waitCommand{Env: env}
	cmd := app.Command("wait", "Waits until a candidate leads, or until nobody does").HelpLong(waitHelp).Action(cli.Request(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("leader", "Wait until the candidate NAME leads").PlaceHolder("NAME").IsSetByUser(&c.leaderSet).StringVar(&c.leader)
	cmd.Flag("vacant", "Wait until the key has no holder").UnNegatableBoolVar(&c.vacant)
	cli.DurationVar(cmd.Flag("max-wait", "Time limit (default none)").IsSetByUser(&c.maxWaitSet), &c.maxWait)
	cli.JSONVar(cmd, "Write the result as JSON", &c.json)
	env.Connection.RegisterConnectTimeout(cmd)
}

// check validates the command line before the command connects.
func (c *waitCommand) check() error {
	problems := cli.Problems{validate.Key(c.key)}
	problems.If(c.leaderSet && c.vacant, "--leader and --vacant exclude each other: give one of them")
	problems.If(c.leaderSet && c.leader == "", "--leader is empty: name a candidate, or leave out --leader to wait for any leader")
	problems.If(c.maxWaitSet && c.maxWait <= 0, "--max-wait %v: give a positive duration such as 30s, or leave out --max-wait to wait without a limit", c.maxWait)
	return problems.Err()
}

// run waits, and writes the result.
func (c *waitCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.maxWaitSet && c.Connection.TimeoutSet {
		c.maxWait = c.Connection.Timeout
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if c.maxWait > 0 {
		defer time.AfterFunc(c.maxWait, func() { fail(c.timedOut()) }).Stop()
	}
	err := c.wait(ctx, fail)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// timedOut returns the error for the end of --max-wait: without a connection nothing is known of the condition.
func (c *waitCommand) timedOut() error {
	client := c.following.Load()
	switch {
	case client == nil:
		return fmt.Errorf("%s could not be observed within %v: its server or bucket did not answer", terminal.Quote(c.key), c.maxWait)
	case !client.Conn.IsConnected():
		return fmt.Errorf("%s did not %s within %v, as far as is known: the connection was lost", terminal.Quote(c.key), c.condition(), c.maxWait)
	}
	text := fmt.Sprintf("%s did not %s within %v", terminal.Quote(c.key), c.condition(), c.maxWait)
	switch {
	case c.pause != "":
		text += ": it is " + c.pause
	case !c.vacant:
		text += fmt.Sprintf("; %s says why", c.NameCommand("check "+c.key))
	}
	return &cli.ExitError{Code: supervise.ExitTimedOut, Message: text}
}

// condition describes the condition that the command waits for, as part of an error message.
func (c *waitCommand) condition() string {
	switch {
	case c.vacant:
		return "become vacant"
	case c.leader != "":
		return fmt.Sprintf("get the leader %q", c.leader)
	}
	return "get a leader"
}

// wait returns nil once the condition holds and the result is written. An unreachable server is an error at once, unless a flag says
// for how long to wait for it.
func (c *waitCommand) wait(ctx context.Context, fail context.CancelCauseFunc) error {
	log := c.Log(slog.LevelWarn)
	client, err := c.Connection.ConnectWithRetry("election-cli wait", fail, log, nats.RetryOnFailedConnect(c.Connection.WaitsForServer()))
	if err != nil {
		return err
	}
	v, events, err := look.Follow(ctx, client, c.Bucket, log, c.key)
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	if err := c.explainPause(ctx, v); err != nil {
		return err
	}
	c.following.Store(client)
	if c.vacant {
		if err := v.WaitForVacancy(ctx, events, c.key); err != nil {
			return err
		}
		return c.print(ctx, v, nil)
	}
	leader, err := look.WaitForLeader(ctx, events, c.leader)
	if err != nil {
		return err
	}
	return c.print(ctx, v, &leader)
}

// explainPause says that the election is paused, if the wait may not end because of that.
func (c *waitCommand) explainPause(ctx context.Context, v *look.View) error {
	if c.vacant || !v.IsPaused(c.key) {
		return nil
	}
	leader, err := v.Leader(ctx, c.key)
	if leads := err == nil && leader.State != look.StateLeaderElect; leads && (c.leader == "" || c.leader == leader.Name) {
		return nil
	}
	c.pause = v.ExplainPause(c.key)
	_, err = fmt.Fprintf(c.Stderr, "%s is %s\n", terminal.Quote(c.key), c.pause)
	return err
}

// print writes the result. The leader is nil if the key has no holder.
func (c *waitCommand) print(ctx context.Context, v *look.View, l *election.Leader) error {
	if !c.json {
		text := terminal.Quote(c.key) + " is vacant"
		if l != nil {
			text = look.DescribeEvent(observe.Event{Kind: observe.Leading, Key: c.key, Leader: *l})
		}
		_, err := fmt.Fprintln(c.Stdout, text)
		return err
	}
	info := look.ElectionInfo{Key: c.key, Bucket: v.Bucket.Bucket()}
	if l != nil {
		read := time.Now()
		_ = v.Refresh(ctx) // after an error the earlier reading of the clock is good enough
		h := v.NewHolder(*l, read)
		info.Leader = &h
	}
	return terminal.WriteJSON(c.Stdout, info)
}
