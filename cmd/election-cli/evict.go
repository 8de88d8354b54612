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
renewal. Then another candidate is elected, and leads when its stand-down is over, which after an eviction takes a TTL for
candidates that are notified of it. A leader that is partitioned at that moment considers itself leader until its lease ends,
while another one is elected. Prefer resign: it hands over in order, and at once.

The command evicts only the leader that it has shown: if another candidate holds the key by the time of the answer, nothing is
done. With --revision the key is deleted only while its record has that very revision, which each renewal changes.

With --json the result is one object: "key", "bucket", and "leader", the evicted one: ` + look.HolderHelp + `.

The exit code is 0 when the leader was evicted, and 1 if nothing was done: nobody leads, another candidate does, or you said no.`

// evictAttempts is how often a deletion is tried that the leader's renewals outran.
const evictAttempts = 5

// evictCommand is the command of that name.
type evictCommand struct {
	*cli.Env
	key      string
	force    bool
	revision uint64
	json     bool

	revisionSet bool
}

func registerEvict(app *fisk.Application, t *cli.Env) {
	c := &evictCommand{Env: t}
	cmd := app.Command("evict", "Deletes the leader's key (the leader loses its term)").HelpLong(evictHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("force", "Do not ask").Short('f').UnNegatableBoolVar(&c.force)
	cmd.Flag("revision", "Evict only while the record has that revision").PlaceHolder("N").IsSetByUser(&c.revisionSet).Uint64Var(&c.revision)
	cmd.Flag("json", "Write the evicted leader as JSON").UnNegatableBoolVar(&c.json)
}

// run evicts the leader.
func (c *evictCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	v, err := look.Open(ctx, c.Env, "evict")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer v.Conn.Close()
	leader, err := v.Leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return c.nothing("nobody leads %s in bucket %s on %s", c.key, v.Bucket.Bucket(), v.ServerURL())
	case err != nil:
		return cli.OrInterrupted(ctx, err)
	case c.revisionSet && leader.Revision != c.revision:
		return c.nothing("the record of %s, which leads %s, has revision %d and not %d", leader.Name, c.key, leader.Revision, c.revision)
	}
	c.explain(v, leader)
	if err := c.Confirm(ctx, c.force, fmt.Sprintf("Evict %s from %s?", leader.Name, c.key)); err != nil {
		return err
	}
	evicted, err := c.evict(ctx, v, leader)
	if err != nil {
		return err
	}
	if c.json {
		return terminal.WriteJSON(c.Stdout, look.Election{Key: c.key, Bucket: v.Bucket.Bucket(), Leader: evicted})
	}
	_, err = fmt.Fprintf(c.Stdout, "Evicted %s from %s, term %s, revision %d\n", evicted.Name, c.key, terminal.TermNumber(evicted.Term), evicted.Revision)
	return err
}

// check finds what is wrong with the command line before anything is begun.
func (c *evictCommand) check() error {
	problems := []error{cli.CheckKey(c.key, false)}
	if c.revisionSet && c.revision == 0 {
		problems = append(problems, errors.New("--revision 0: no record has that revision; 'election-cli info KEY' shows the one there is"))
	}
	return errors.Join(problems...)
}

// explain says whom it is about, and what an eviction means.
func (c *evictCommand) explain(v *look.View, s *look.Holder) {
	if c.force {
		return
	}
	since := ""
	if text := s.HeldSince(v.Clock.Now()); text != "" {
		since = " since " + text
	}
	verb := "leads"
	if s.State == look.StateLeaderElect {
		verb = "has won and is about to lead"
	}
	fmt.Fprintf(c.Stderr, "%s %s %s%s, term %s; it renewed %s, and its lease lasts for another %s.\n", s.Name, verb, c.key, since, terminal.TermNumber(s.Term), terminal.Ago(s.Age), terminal.Human(max(s.Left, 0)))
	fmt.Fprintf(c.Stderr, "It loses its term when it is notified, or at its next renewal. Then another candidate is elected, and leads %s later or more.\n", terminal.Human(v.TTL()))
	fmt.Fprintf(c.Stderr, "If it is partitioned just now, two may lead at once for the rest of its lease. To have it resign is in order, and quicker.\n")
}

// evictCommand deletes the key as long as the leader that was shown holds it, whatever it renewed meanwhile.
func (c *evictCommand) evict(ctx context.Context, v *look.View, meant *look.Holder) (*look.Holder, error) {
	for range evictAttempts {
		now, err := c.still(ctx, v, meant)
		if err != nil {
			return nil, err
		}
		err = c.remove(ctx, v, now.Revision)
		switch {
		case err == nil:
			return now, nil
		case !errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !errors.Is(err, jetstream.ErrKeyExists):
			return nil, cli.InDoubt(ctx, err, "whether %s was evicted is not known ('election-cli info %s' shows who leads)", now.Name, c.key)
		case c.revisionSet:
			return nil, c.nothing("the record of %s changed meanwhile and has no longer revision %d", c.key, c.revision)
		}
	}
	return nil, c.nothing("%s renewed too often to be evicted in %d attempts", meant.Name, evictAttempts)
}

// still returns the leader as its record is now, if it is the one that is meant, in the same term.
func (c *evictCommand) still(ctx context.Context, v *look.View, meant *look.Holder) (*look.Holder, error) {
	now, err := v.Leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil, c.nothing("%s released %s meanwhile, and nobody leads", meant.Name, c.key)
	case err != nil:
		return nil, cli.OrInterrupted(ctx, err)
	case now.Name != meant.Name || now.Instance != meant.Instance || !now.Since.Equal(meant.Since):
		return nil, c.nothing("the leader of %s changed meanwhile: it is %s now", c.key, now.Name)
	case c.revisionSet && now.Revision != c.revision:
		return nil, c.nothing("the record of %s changed meanwhile and has revision %d now, not %d", c.key, now.Revision, c.revision)
	}
	return now, nil
}

// remove deletes the key while its record has the revision.
func (c *evictCommand) remove(ctx context.Context, v *look.View, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	return v.Bucket.Delete(ctx, c.key, jetstream.LastRevision(revision))
}

// nothing is the verdict if nothing was done.
func (c *evictCommand) nothing(why string, a ...any) *cli.ExitError {
	return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf(why, a...) + "; nothing was done"}
}
