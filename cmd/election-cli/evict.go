package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

const evictHelp = `The command shows the leader, asks, and deletes the leader's key. The leader loses its term when it is notified, or at its next
renewal. Another candidate is elected, and leads after its stand-down. After an eviction, the stand-down of candidates that are
notified lasts one TTL. If the leader is partitioned at that moment, it considers itself leader until its lease ends, while another
candidate is elected. Prefer 'election-cli resign', which hands over in order and at once.

Example: election-cli evict scheduler

The command evicts only the leader that it showed. If another candidate holds the key when you answer, the command does nothing.
With --revision it deletes the key only while the record has that revision, which each renewal changes.

With --json the result is one object: "key", "bucket", and "leader", the evicted leader: ` + look.HolderHelp + `.

Exit codes: 0 if the leader was evicted; 1 if nothing was done, because nobody leads, another candidate leads, or you answered
no; 2 for wrong usage and any other error.`

// evictAttempts limits the deletions, because each renewal between the read and the deletion makes the deletion fail.
const evictAttempts = 5

// evictCommand implements evict.
type evictCommand struct {
	*cli.Env
	key      string
	force    bool
	revision uint64
	json     bool

	revisionSet bool
}

func registerEvict(app *fisk.Application, env *cli.Env) {
	c := &evictCommand{Env: env}
	cmd := app.Command("evict", "Deletes the leader's key (the leader loses its term)").HelpLong(evictHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cli.ForceVar(cmd, "Do not ask", &c.force)
	cli.Uint64Var(cmd.Flag("revision", "Evict only while the record has this revision").IsSetByUser(&c.revisionSet), &c.revision)
	cli.JSONVar(cmd, "Write the evicted leader as JSON", &c.json)
}

// run shows the leader, asks, and evicts the leader.
func (c *evictCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	v, err := look.Open(ctx, c.Env, "evict")
	if err != nil {
		return cli.InterruptedOr(ctx, err)
	}
	defer v.Conn.Close()
	leader, err := v.Leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return c.nothingDone("nobody leads %q in bucket %q on %s", c.key, v.Bucket.Bucket(), v.ServerURL())
	case err != nil:
		return cli.InterruptedOr(ctx, err)
	case c.revisionSet && leader.Revision != c.revision:
		return c.nothingDone("the record of %s, the leader of %q, has revision %d and not %d", terminal.Quote(leader.Name), c.key, leader.Revision, c.revision)
	}
	c.describe(v, leader)
	if err := c.Confirm(ctx, c.force, fmt.Sprintf("Evict %s from %q?", terminal.Quote(leader.Name), c.key)); err != nil {
		return err
	}
	evicted, err := c.evict(ctx, v, leader)
	if err != nil {
		return err
	}
	if c.json {
		return terminal.WriteJSON(c.Stdout, look.ElectionInfo{Key: c.key, Bucket: v.Bucket.Bucket(), Leader: evicted, Paused: v.IsPaused(c.key)})
	}
	_, err = fmt.Fprintf(c.Stdout, "Evicted %s from %q, term %s, revision %d\n", terminal.Quote(evicted.Name), c.key, terminal.NumberOrDash(evicted.Term), evicted.Revision)
	return err
}

// check validates the command line before the command connects.
func (c *evictCommand) check() error {
	problems := []error{cli.CheckKey(c.key, false)}
	if c.revisionSet && c.revision == 0 {
		problems = append(problems, errors.New("--revision 0: no record has this revision; 'election-cli info KEY' shows the revision"))
	}
	return errors.Join(problems...)
}

// describe writes the leader and the consequences of an eviction.
func (c *evictCommand) describe(v *look.View, h *look.Holder) {
	if c.force {
		return
	}
	since := ""
	if text := h.HeldSince(); text != "" {
		since = " since " + text
	}
	verb := "leads"
	if h.State == look.StateLeaderElect {
		verb = "has won and is about to lead"
	}
	fmt.Fprintf(c.Stderr, "%s %s %q%s, term %s; it renewed %s, and its lease ends in %s.\n", terminal.Quote(h.Name), verb, c.key, since, terminal.NumberOrDash(h.Term), terminal.Ago(h.RenewalAge), terminal.FormatDuration(max(h.TimeLeft, 0)))
	fmt.Fprintf(c.Stderr, "It loses its term when it is notified, or at its next renewal. Then another candidate is elected, and leads after at least %s.\n", terminal.FormatDuration(v.TTL()))
	fmt.Fprintf(c.Stderr, "If it is partitioned now, two candidates may lead until its lease ends. 'election-cli resign %s' hands over in order, and faster.\n", c.key)
}

// evict deletes the key if the shown leader still holds it in the same term, even if the leader has renewed since.
func (c *evictCommand) evict(ctx context.Context, v *look.View, shown *look.Holder) (*look.Holder, error) {
	for range evictAttempts {
		now, err := c.reread(ctx, v, shown)
		if err != nil {
			return nil, err
		}
		err = c.remove(ctx, v, now.Revision)
		switch {
		case err == nil:
			return now, nil
		case !errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !errors.Is(err, jetstream.ErrKeyExists):
			return nil, cli.UnknownOutcome(ctx, err, "it is not known whether %s was evicted: run 'election-cli info %s'", terminal.Quote(now.Name), c.key)
		case c.revisionSet:
			return nil, c.nothingDone("the record of %q has changed and no longer has revision %d", c.key, c.revision)
		}
	}
	return nil, c.nothingDone("%s renewed too often to be evicted in %d attempts", terminal.Quote(shown.Name), evictAttempts)
}

// reread reads the leader again. It returns an error unless that is the shown leader in the same term.
func (c *evictCommand) reread(ctx context.Context, v *look.View, shown *look.Holder) (*look.Holder, error) {
	now, err := v.Leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil, c.nothingDone("%s has released %q, and nobody leads", terminal.Quote(shown.Name), c.key)
	case err != nil:
		return nil, cli.InterruptedOr(ctx, err)
	case now.Name != shown.Name || now.Instance != shown.Instance || !now.Since.Equal(shown.Since):
		return nil, c.nothingDone("the leader of %q has changed: it is %s now", c.key, terminal.Quote(now.Name))
	case c.revisionSet && now.Revision != c.revision:
		return nil, c.nothingDone("the record of %q has changed and has revision %d now, not %d", c.key, now.Revision, c.revision)
	}
	return now, nil
}

// remove deletes the key if its record has the revision.
func (c *evictCommand) remove(ctx context.Context, v *look.View, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	return v.Bucket.Delete(ctx, c.key, jetstream.LastRevision(revision))
}

// nothingDone returns the error of a command that did nothing, with the reason.
func (c *evictCommand) nothingDone(reason string, args ...any) *cli.ExitError {
	return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf(reason, args...) + "; nothing was done"}
}
