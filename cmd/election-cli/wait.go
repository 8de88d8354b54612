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
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

// exitTimeout is the exit code of a command whose time is up, as timeout(1) has it.
const exitTimeout = 124

const waitHelp = `It ends as soon as somebody leads and leadership counts; with --leader, as soon as NAME does; with --vacant, as soon as
nobody holds the key, be it for a moment only. The result is a line on stdout, with --json one object: "key", "bucket",
and "leader", which is null or has the fields that 'info KEY --json' shows. Of a bare name, as Choria's candidates write it,
only its next renewal shows that its leadership counts.

It waits for a server that cannot be reached. The exit code is 0 when it is so, 124 if it is not within --max-wait, as
timeout(1) has it, and 130 if it was interrupted. Without --max-wait a --timeout that is given here is the limit as well.`

// vacancyPoll is how often the key is read while a vacancy is waited for: of a key that is free already, nothing is told.
const vacancyPoll = time.Second

// waitCommand is the command of that name.
type waitCommand struct {
	*cli.Env
	key, leader string
	vacant      bool
	maxWait     time.Duration
	json        bool

	leaderSet, maxWaitSet bool
}

func registerWait(app *fisk.Application, t *cli.Env) {
	c := &waitCommand{Env: t}
	cmd := app.Command("wait", "Waits until somebody leads, or nobody does").HelpLong(waitHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("leader", "Wait until the candidate of that name leads").PlaceHolder("NAME").IsSetByUser(&c.leaderSet).StringVar(&c.leader)
	cmd.Flag("vacant", "Wait until nobody holds the key").UnNegatableBoolVar(&c.vacant)
	cmd.Flag("max-wait", "How long to wait (default without end)").PlaceHolder("DURATION").IsSetByUser(&c.maxWaitSet).DurationVar(&c.maxWait)
	cmd.Flag("json", "Write what was found as JSON").UnNegatableBoolVar(&c.json)
}

// check finds what is wrong with the command line before anything is begun.
func (c *waitCommand) check() error {
	problems := []error{cli.CheckKey(c.key, false)}
	if c.leaderSet && c.vacant {
		problems = append(problems, errors.New("--leader and --vacant exclude each other: give one of them"))
	}
	if c.leaderSet && c.leader == "" {
		problems = append(problems, errors.New("--leader is empty: name a candidate, or leave it out to wait for any"))
	}
	if c.maxWaitSet && c.maxWait <= 0 {
		problems = append(problems, fmt.Errorf("--max-wait %v: give a positive duration such as 30s, or leave it out to wait without end", c.maxWait))
	}
	return errors.Join(problems...)
}

// run waits, and tells what it found.
func (c *waitCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.maxWaitSet && c.Connection.TimeoutSet {
		c.maxWait = c.Connection.Timeout
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	if c.maxWait > 0 {
		defer time.AfterFunc(c.maxWait, func() {
			fail(&cli.ExitError{Code: exitTimeout, Message: fmt.Sprintf("%s did not %s within %v", c.key, c.becoming(), c.maxWait)})
		}).Stop()
	}
	err := c.wait(ctx, fail)
	if err != nil && user.Err() != nil {
		return &cli.ExitError{Code: cli.ExitInterrupted, Message: "interrupted"}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// becoming says in words what is waited for.
func (c *waitCommand) becoming() string {
	switch {
	case c.vacant:
		return "become vacant"
	case c.leader != "":
		return fmt.Sprintf("get %q for its leader", c.leader)
	}
	return "get a leader"
}

// waitCommand returns no error once it is so, and was told.
func (c *waitCommand) wait(ctx context.Context, fail context.CancelCauseFunc) error {
	v, events, err := look.Follow(ctx, c.Env, fail, "wait", slog.New(terminal.NewLogHandler(c.Stderr, terminal.StyleFor(c.Stderr), slog.LevelWarn)), c.key)
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	if c.vacant {
		return c.waitForVacancy(ctx, v, events)
	}
	for e := range events {
		if c.fulfilledBy(e) {
			return c.tell(ctx, v, &e.Leader)
		}
	}
	return context.Cause(ctx)
}

// fulfilledBy says whether somebody leads who is waited for.
func (c *waitCommand) fulfilledBy(e observe.Event) bool {
	return (e.Kind == observe.Leading || e.Kind == observe.Renewed && e.Leader.Term != 0) && (c.leader == "" || e.Leader.Name == c.leader)
}

// waitForVacancy waits until nobody holds the key.
func (c *waitCommand) waitForVacancy(ctx context.Context, v *look.View, events <-chan observe.Event) error {
	poll := time.NewTicker(vacancyPoll)
	defer poll.Stop()
	for {
		_, err := v.Leader(ctx, c.key)
		if errors.Is(err, election.ErrNoLeader) {
			return c.tell(ctx, v, nil)
		}
		select {
		case <-poll.C:
		case e, ok := <-events:
			if !ok {
				return context.Cause(ctx)
			}
			if e.Kind == observe.Released || e.Kind == observe.Expired { // as one that was evicted may have been overwritten
				return c.tell(ctx, v, nil)
			}
		}
	}
}

// tell writes what was found.
func (c *waitCommand) tell(ctx context.Context, v *look.View, l *election.Leader) error {
	if !c.json {
		text := c.key + " is vacant"
		if l != nil {
			s := look.Shown(*l)
			text = look.Sentence(observe.Event{Kind: observe.Leading, Key: c.key, Leader: s})
		}
		_, err := fmt.Fprintln(c.Stdout, text)
		return err
	}
	f := look.Election{Key: c.key, Bucket: v.Bucket.Bucket()}
	if l != nil {
		_ = v.Refresh(ctx) // the clock as it was known before will do
		s := v.Sight(*l)
		f.Leader = &s
	}
	return terminal.WriteJSON(c.Stdout, f)
}
