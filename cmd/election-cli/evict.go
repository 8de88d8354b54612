package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

const evictHelp = `The command shows the leader, asks, and deletes the leader's key. The leader loses its term when it is notified, or at its next
renewal. Then another candidate is elected, and leads when its stand-down is over, which after an eviction takes a TTL for
candidates that are notified of it. A leader that is partitioned at that moment considers itself leader until its lease ends,
while another one is elected. Prefer resign: it hands over in order, and at once.

The command evicts only the leader that it has shown: if another candidate holds the key by the time of the answer, nothing is
done. With --revision the key is deleted only while its record has that very revision, which each renewal changes.

With --json the result is one object: "key", "bucket", and "leader", the evicted one: ` + holderHelp + `.

The exit code is 0 when the leader was evicted, and 1 if nothing was done: nobody leads, another candidate does, or you said no.`

// evictAttempts is how often a deletion is tried that the leader's renewals outran.
const evictAttempts = 5

// evict is the command of that name.
type evict struct {
	*tool
	key      string
	force    bool
	revision uint64
	json     bool

	revisionSet bool
}

func registerEvict(app *fisk.Application, t *tool) {
	c := &evict{tool: t}
	cmd := app.Command("evict", "Deletes the leader's key (the leader loses its term)").HelpLong(evictHelp).Action(action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("force", "Do not ask").Short('f').UnNegatableBoolVar(&c.force)
	cmd.Flag("revision", "Evict only while the record has that revision").PlaceHolder("N").IsSetByUser(&c.revisionSet).Uint64Var(&c.revision)
	cmd.Flag("json", "Write the evicted leader as JSON").UnNegatableBoolVar(&c.json)
}

// run evicts the leader.
func (c *evict) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	v, err := c.look(ctx, "evict")
	if err != nil {
		return stopped(ctx, err)
	}
	defer v.nc.Close()
	leader, err := v.leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return c.nothing("nobody leads %s in bucket %s on %s", c.key, v.bucket.Bucket(), v.server())
	case err != nil:
		return stopped(ctx, err)
	case c.revisionSet && leader.Revision != c.revision:
		return c.nothing("the record of %s, which leads %s, has revision %d and not %d", leader.Name, c.key, leader.Revision, c.revision)
	}
	c.explain(v, leader)
	if err := c.confirm(ctx, c.force, fmt.Sprintf("Evict %s from %s?", leader.Name, c.key)); err != nil {
		return err
	}
	evicted, err := c.evict(ctx, v, leader)
	if err != nil {
		return err
	}
	if c.json {
		return writeJSON(c.stdout, found{Key: c.key, Bucket: v.bucket.Bucket(), Leader: evicted})
	}
	_, err = fmt.Fprintf(c.stdout, "Evicted %s from %s, term %s, revision %d\n", evicted.Name, c.key, termOf(evicted.Term), evicted.Revision)
	return err
}

// check finds what is wrong with the command line before anything is begun.
func (c *evict) check() error {
	problems := []error{checkKey(c.key, false)}
	if c.revisionSet && c.revision == 0 {
		problems = append(problems, errors.New("--revision 0: no record has that revision; 'election-cli info KEY' shows the one there is"))
	}
	return errors.Join(problems...)
}

// explain says whom it is about, and what an eviction means.
func (c *evict) explain(v *view, s *holder) {
	if c.force {
		return
	}
	since := ""
	if text := s.since(v.clock.now()); text != "" {
		since = " since " + text
	}
	verb := "leads"
	if s.State == standingLeaderElect {
		verb = "has won and is about to lead"
	}
	fmt.Fprintf(c.stderr, "%s %s %s%s, term %s; it renewed %s, and its lease lasts for another %s.\n", s.Name, verb, c.key, since, termOf(s.Term), ago(s.age), human(max(s.left, 0)))
	fmt.Fprintf(c.stderr, "It loses its term when it is notified, or at its next renewal. Then another candidate is elected, and leads %s later or more.\n", human(v.ttl()))
	fmt.Fprintf(c.stderr, "If it is partitioned just now, two may lead at once for the rest of its lease. To have it resign is in order, and quicker.\n")
}

// evict deletes the key as long as the leader that was shown holds it, whatever it renewed meanwhile.
func (c *evict) evict(ctx context.Context, v *view, meant *holder) (*holder, error) {
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
			return nil, inDoubt(ctx, err, "whether %s was evicted is not known ('election-cli info %s' shows who leads)", now.Name, c.key)
		case c.revisionSet:
			return nil, c.nothing("the record of %s changed meanwhile and has no longer revision %d", c.key, c.revision)
		}
	}
	return nil, c.nothing("%s renewed too often to be evicted in %d attempts", meant.Name, evictAttempts)
}

// still returns the leader as its record is now, if it is the one that is meant, in the same term.
func (c *evict) still(ctx context.Context, v *view, meant *holder) (*holder, error) {
	now, err := v.leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return nil, c.nothing("%s released %s meanwhile, and nobody leads", meant.Name, c.key)
	case err != nil:
		return nil, stopped(ctx, err)
	case now.Name != meant.Name || now.Instance != meant.Instance || !now.Since.Equal(meant.Since):
		return nil, c.nothing("the leader of %s changed meanwhile: it is %s now", c.key, now.Name)
	case c.revisionSet && now.Revision != c.revision:
		return nil, c.nothing("the record of %s changed meanwhile and has revision %d now, not %d", c.key, now.Revision, c.revision)
	}
	return now, nil
}

// remove deletes the key while its record has the revision.
func (c *evict) remove(ctx context.Context, v *view, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	return v.bucket.Delete(ctx, c.key, jetstream.LastRevision(revision))
}

// nothing is the verdict if nothing was done.
func (c *evict) nothing(why string, a ...any) *verdict {
	return &verdict{exitNegative, fmt.Sprintf(why, a...) + "; nothing was done"}
}
