package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/observe"
)

const watchHelp = `The command prints the current state, and then each change when it is committed, until it is interrupted. That is its normal end,
with exit code 0. It does not print failed attempts to win. It waits for an unreachable server; afterwards it prints the resulting
state, not each change in between. On stderr it says who led last where nobody leads at the start, and which renewals are overdue.

Example: election-cli watch --json scheduler

KEY may contain wildcards, as in subjects; without KEY the command watches all elections of the bucket. Each event is a line on
stdout. With --json each event is one JSON object: "kind", "key" (the election), "at" (RFC 3339, by the server's clock), "reason",
"by", and "leader", the holder of the key after the event or, if the key was released, expired or evicted, before it. The leader has
"key", "name", "instance", "host", "pid", "priority", "state", "term", "bucket_created", "revision", "started", "since",
"leads_since", "renewed", "expires" and "metadata", as far as they are known. The kinds are:

    elected    a candidate won the key; its leadership counts after the stand-down, if there is one. Reason: vacant, released,
               reclaimed or lapsed
    leading    leadership counts from now on
    renewed    the leader renewed; with --verbose only
    released   the holder released the key. Reason, by the release: stopped, resigned, transferred, relinquished, unhealthy,
               work-ended or died
    expired    the holder did not renew for one TTL. What is stored does not say why. Reason: lapsed, if another candidate took
               the key over once the holder's lease was over
    evicted    the holder lost the key otherwise. Reason: deleted, overwritten, bucket-replaced or rewound
    dropped    the output was not read in time, and "dropped" events are missing here

The command gives a reason only if what is stored proves it. The witness of a leader states "died" when the leader's process died.
"by" is the operator who ran 'election-cli evict', as USER@HOST, or the candidate that overwrote the key. A deletion by other means
does not say by whom.`

// watchCommand implements watch.
type watchCommand struct {
	*cli.Env
	keys    []string
	json    bool
	verbose bool
	count   int

	countSet bool
}

func registerWatch(app *fisk.Application, env *cli.Env) {
	c := &watchCommand{Env: env}
	cmd := app.Command("watch", "Prints the events of elections as they happen").HelpLong(watchHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The elections, keys of the bucket or patterns of keys").StringsVar(&c.keys)
	cli.JSONVar(cmd, "Write events as JSON, one object on each line", &c.json)
	cmd.Flag("verbose", "Also print renewals").Short('v').UnNegatableBoolVar(&c.verbose)
	cli.IntVar(cmd.Flag("count", "End after N events").IsSetByUser(&c.countSet), &c.count, 10)
	env.Connection.RegisterConnectTimeout(cmd)
}

// run prints events until ctx ends.
func (c *watchCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	writer := &look.EventWriter{Style: terminal.StyleFor(c.Stdout), JSON: c.json}
	return c.RunLasting(ctx, slog.LevelInfo, writer.DroppedEvents, func(ctx context.Context, l cli.Lasting) error {
		writer.Out = l.Stdout
		return cli.IgnoreIfDone(ctx, c.watch(ctx, l.Fail, slog.New(l.Log), writer))
	})
}

// check validates the command line before the command connects.
func (c *watchCommand) check() error {
	var problems cli.Problems
	for _, key := range c.keys {
		problems.Add(validate.Pattern(key))
	}
	problems.If(c.countSet && c.count < 1, "--count %d: give a positive number, or leave out --count to watch until interrupted", c.count)
	return problems.Err()
}

// watch prints events until ctx ends, or until it has printed --count of them.
func (c *watchCommand) watch(ctx context.Context, fail context.CancelCauseFunc, log *slog.Logger, out *look.EventWriter) error {
	client, err := c.Connection.ConnectWithRetry("election-cli watch", fail, log)
	if err != nil {
		return err
	}
	v, events, err := look.Follow(ctx, client, c.Bucket, log, c.keys...)
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	c.logEnded(ctx, v, log)
	overdue := look.Overdue{TTL: v.TTL(), Log: log}
	ticks := time.NewTicker(look.OverdueInterval)
	defer ticks.Stop()
	for printed := 0; ; {
		select {
		case <-ticks.C:
			overdue.Report()
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if look.IsOtherData(e.Leader) {
				continue
			}
			overdue.Follow(e)
			if e.Kind == observe.Renewed && !c.verbose {
				continue
			}
			if err := out.Write(e); err != nil {
				return err
			}
			if printed++; printed == c.count {
				return nil
			}
		}
	}
}

// maxLoggedEnds limits the ended elections that the command names at its start.
const maxLoggedEnds = 10

// logEnded logs who led last in the elections that nobody leads at the start. A user who may read only events does without.
func (c *watchCommand) logEnded(ctx context.Context, v *look.View, log *slog.Logger) {
	ended, err := v.Ended(ctx, c.keys...)
	if err != nil {
		return
	}
	for _, e := range ended[:min(len(ended), maxLoggedEnds)] {
		log.Info("Nobody leads", "election", e.Key, "last", e.Leader.Name, "until", terminal.Timestamp(e.At), "why", look.EndCause(e))
	}
	if more := len(ended) - maxLoggedEnds; more > 0 {
		log.Info("Nobody leads in more elections", "number", more)
	}
}
