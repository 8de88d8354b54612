package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/events"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

const watchHelp = `It prints the current state first, and then each change as it is committed, until it is interrupted; that is its normal end,
and the exit code 0. Attempts to win that failed are not shown. It waits for a server that cannot be reached; of what happened
meanwhile it shows the result.

KEY may have wildcards as subjects do; without KEY it is all elections of the bucket. Each event is a line on stdout, with
--json one JSON object: "kind", "key" (the election), "at" (RFC 3339, by the server's clock) and "leader", which holds the
key after the event, or held it before it was released, expired or evicted: "key", "name", "instance", "host", "pid",
"priority", "state", "term", "bucket_created", "revision", "started", "since", "renewed", "expires" and "metadata", as far as
they are known. Kinds are:

    elected    a candidate won the key; leadership counts after the stand-down
    leading    leadership counts from now on
    renewed    the leader renewed; with --verbose only
    released   the holder released the key
    expired    the holder did not renew for a TTL
    evicted    somebody else deleted the key, or wrote over it
    dropped    events are missing here, "dropped" in number, because nobody read them in time`

// watchCommand is the command of that name.
type watchCommand struct {
	*cli.Env
	keys    []string
	json    bool
	verbose bool
	count   int

	countSet bool
}

func registerWatch(app *fisk.Application, t *cli.Env) {
	c := &watchCommand{Env: t}
	cmd := app.Command("watch", "Prints the events of elections as they happen").HelpLong(watchHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The elections, keys of the bucket or patterns of keys").StringsVar(&c.keys)
	cmd.Flag("json", "Write events as JSON, one object on each line").UnNegatableBoolVar(&c.json)
	cmd.Flag("verbose", "Show renewals as well").Short('v').UnNegatableBoolVar(&c.verbose)
	cmd.Flag("count", "End after that many events").PlaceHolder("N").IsSetByUser(&c.countSet).IntVar(&c.count)
}

// run tells events until ctx ends.
func (c *watchCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	stdout, stderr := terminal.NewQueue(c.Stdout, c.gap, fail), terminal.NewQueue(c.Stderr, terminal.Dropped, fail)
	defer stderr.Close()
	defer stdout.Close()
	log := slog.New(terminal.NewLogHandler(stderr, terminal.StyleFor(c.Stderr), slog.LevelInfo))
	err := c.watch(ctx, fail, log, stdout)
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // what ended it was not the user
	}
	return err
}

// check finds what is wrong with the command line before anything is begun.
func (c *watchCommand) check() error {
	var problems []error
	for _, key := range c.keys {
		problems = append(problems, cli.CheckKey(key, true))
	}
	if c.countSet && c.count < 1 {
		problems = append(problems, fmt.Errorf("--count %d: give a positive number, or leave it out to watch until interrupted", c.count))
	}
	return errors.Join(problems...)
}

// watchCommand tells events, until there were as many as wanted.
func (c *watchCommand) watch(ctx context.Context, fail context.CancelCauseFunc, log *slog.Logger, out io.Writer) error {
	v, events, err := look.Follow(ctx, c.Env, fail, "watch", log, c.keys...)
	if err != nil {
		return cli.UnlessOver(ctx, err)
	}
	defer v.Conn.Close()
	told := 0
	for e := range events {
		if look.IsOther(e.Leader) {
			continue
		}
		if e.Kind == observe.Renewed && !c.verbose {
			continue
		}
		if err := c.tell(out, e); err != nil {
			return err
		}
		if told++; told == c.count {
			return nil
		}
	}
	return nil
}

// gap stands for events that were dropped because nobody read them.
func (c *watchCommand) gap(lines int) string {
	if !c.json {
		return terminal.Dropped(lines)
	}
	line, err := json.Marshal(struct {
		Kind    string    `json:"kind"`
		Dropped int       `json:"dropped"`
		At      time.Time `json:"at"`
	}{events.Dropped, lines, time.Now().UTC()})
	if err != nil { // no value of these types is refused
		panic(err)
	}
	return string(line) + "\n"
}

// tell writes one event.
func (c *watchCommand) tell(w io.Writer, e observe.Event) error {
	e.Key, e.Leader = terminal.Printable(e.Key), look.Shown(e.Leader)
	if c.json {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = w.Write(append(line, '\n'))
		return err
	}
	st := terminal.StyleFor(c.Stdout)
	_, err := fmt.Fprintf(w, "%s  %s  %s\n", st.Paint(terminal.Faint, terminal.Timestamp(e.At)), st.Paint(colourOf(e.Kind), fmt.Sprintf("%-8s", e.Kind)), look.Sentence(e))
	return err
}

// colourOf returns the colour of a kind of event.
func colourOf(k observe.EventKind) string {
	switch k {
	case observe.Leading:
		return terminal.Bold + ";" + terminal.Green
	case observe.Elected:
		return terminal.Yellow
	case observe.Renewed:
		return terminal.Faint
	}
	return terminal.Red
}
