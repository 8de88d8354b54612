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

	"github.com/natscampaign/election"
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

// watch is the command of that name.
type watch struct {
	*tool
	keys    []string
	json    bool
	verbose bool
	count   int

	countSet bool
}

func registerWatch(app *fisk.Application, t *tool) {
	c := &watch{tool: t}
	cmd := app.Command("watch", "Prints the events of elections as they happen").HelpLong(watchHelp).Action(action(c.run))
	cmd.Arg("key", "The elections, keys of the bucket or patterns of keys").StringsVar(&c.keys)
	cmd.Flag("json", "Write events as JSON, one object on each line").UnNegatableBoolVar(&c.json)
	cmd.Flag("verbose", "Show renewals as well").Short('v').UnNegatableBoolVar(&c.verbose)
	cmd.Flag("count", "End after that many events").PlaceHolder("N").IsSetByUser(&c.countSet).IntVar(&c.count)
}

// run tells events until ctx ends.
func (c *watch) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	stdout, stderr := newQueue(c.stdout, c.gap, fail), newQueue(c.stderr, gapInText, fail)
	defer stderr.Close()
	defer stdout.Close()
	log := slog.New(newLogHandler(stderr, styleFor(c.stderr), slog.LevelInfo))
	err := c.watch(ctx, fail, log, stdout)
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // what ended it was not the user
	}
	return err
}

// check finds what is wrong with the command line before anything is begun.
func (c *watch) check() error {
	var problems []error
	for _, key := range c.keys {
		problems = append(problems, checkKey(key, true))
	}
	if c.countSet && c.count < 1 {
		problems = append(problems, fmt.Errorf("--count %d: give a positive number, or leave it out to watch until interrupted", c.count))
	}
	return errors.Join(problems...)
}

// watch tells events, until there were as many as wanted.
func (c *watch) watch(ctx context.Context, fail context.CancelCauseFunc, log *slog.Logger, out io.Writer) error {
	v, events, err := c.follow(ctx, fail, "watch", log, c.keys...)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer v.nc.Close()
	told := 0
	for e := range events {
		if otherwise(e.Leader) {
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

// follow connects, waits for the server and the bucket if need be, and tells what happens under the keys until ctx ends.
// Close the connection.
func (t *tool) follow(ctx context.Context, fail context.CancelCauseFunc, command string, log *slog.Logger, keys ...string) (*view, <-chan observe.Event, error) {
	s, err := t.conn.join("election-cli "+command, fail, log)
	if err != nil {
		return nil, nil, err
	}
	complained := false
	for {
		v, events, err := t.observe(ctx, s, log, keys)
		if err == nil {
			return v, events, nil
		}
		// The server that is to keep the consumer may just have gone, although the bucket was found.
		if _, hopeless := errors.AsType[hopelessness](err); !hopeless && ctx.Err() == nil {
			if !complained {
				log.Warn("Elections cannot be observed yet, trying again", "bucket", t.bucket, "error", err)
				complained = true
			}
			err = pause(ctx, retryPause)
		}
		if err != nil {
			s.nc.Close()
			return nil, nil, err
		}
	}
}

// hopelessness is an error that waiting does not mend.
type hopelessness struct{ error }

// Unwrap returns the error itself.
func (h hopelessness) Unwrap() error { return h.error }

// observe is one attempt to follow.
func (t *tool) observe(ctx context.Context, s *session, log *slog.Logger, keys []string) (*view, <-chan observe.Event, error) {
	bucket, err := s.awaitBucket(ctx, t.bucket, log)
	if err != nil {
		return nil, nil, hopelessness{err}
	}
	v, err := s.view(ctx, bucket, election.WithLogger(log))
	if err != nil {
		return nil, nil, err
	}
	events, err := v.observer.Observe(ctx, keys...)
	return v, events, err
}

// gap stands for events that were dropped because nobody read them.
func (c *watch) gap(lines int) string {
	if !c.json {
		return gapInText(lines)
	}
	line, err := json.Marshal(struct {
		Kind    string    `json:"kind"`
		Dropped int       `json:"dropped"`
		At      time.Time `json:"at"`
	}{eventDropped, lines, time.Now().UTC()})
	if err != nil { // no value of these types is refused
		panic(err)
	}
	return string(line) + "\n"
}

// tell writes one event.
func (c *watch) tell(w io.Writer, e observe.Event) error {
	e.Key, e.Leader = printable(e.Key), shown(e.Leader)
	if c.json {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = w.Write(append(line, '\n'))
		return err
	}
	st := styleFor(c.stdout)
	_, err := fmt.Fprintf(w, "%s  %s  %s\n", st.paint(faint, exactly(e.At)), st.paint(colourOf(e.Kind), fmt.Sprintf("%-8s", e.Kind)), sentenceOf(e))
	return err
}

// colourOf returns the colour of a kind of event.
func colourOf(k observe.EventKind) string {
	switch k {
	case observe.Leading:
		return bold + ";" + green
	case observe.Elected:
		return yellow
	case observe.Renewed:
		return faint
	}
	return red
}

// sentenceOf tells an event to people. What its writer chose is printable already.
func sentenceOf(e observe.Event) string {
	name, term := e.Leader.Name, ""
	if e.Leader.Term != 0 {
		term = fmt.Sprintf(", term %d", e.Leader.Term)
	}
	held := ""
	if d := e.At.Sub(e.Leader.Since); !e.Leader.Since.IsZero() && d > 0 {
		held = fmt.Sprintf(", %s after it was elected", human(d))
	}
	switch e.Kind {
	case observe.Elected:
		return fmt.Sprintf("%s won %s; it leads once the stand-down is over", name, e.Key)
	case observe.Leading:
		return fmt.Sprintf("%s leads %s%s", name, e.Key, term)
	case observe.Renewed:
		return fmt.Sprintf("%s renewed %s%s", name, e.Key, term)
	case observe.Released:
		return fmt.Sprintf("%s released %s%s%s", name, e.Key, term, held)
	case observe.Expired:
		return fmt.Sprintf("%s did not renew %s in time%s%s", name, e.Key, term, held)
	}
	return fmt.Sprintf("%s was evicted from %s%s%s", name, e.Key, term, held)
}
