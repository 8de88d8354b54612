package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/validate"
)

const evictHelp = `The command shows the leader, asks, and deletes the leader's key. The leader loses its term when it is notified, or at its next
renewal. Another candidate is elected, and leads after its stand-down. After an eviction, the stand-down of candidates that are
notified lasts one TTL. Prefer 'election-cli resign', which hands over in order and at once. Do not evict a leader that is cut off or
hangs: it considers itself leader until its lease ends. Wait for that: another candidate leads then, sooner than after an eviction.

Example: election-cli evict scheduler

In a bucket for sessions nothing can be deleted: the command writes over the claim of the key. The session loses this key, and keeps its others.

The command deletes whatever else is stored under the key too, such as a message that never expires, which 'election-cli check' names.

The command evicts only the leader that it showed. If another candidate holds the key when you answer, the command does nothing.
With --revision it deletes the key only while the record has that revision, which each renewal changes. The deletion names you, as
USER@HOST, and 'election-cli watch' and the status page show it.

With --json the result is one object: "key", "bucket", and "leader", the evicted leader: ` + look.HolderHelp + `.

Exit codes: 0 if the leader was evicted; 1 if nothing was done, because nobody leads, another candidate leads, or you answered
no; 2 for wrong usage and any other error.`

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
	cmd := app.Command("evict", "Deletes the leader's key (the leader loses its term)").HelpLong(evictHelp).Action(cli.Request(c.run))
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
		return err
	}
	defer v.Conn.Close()
	leader, err := v.Leader(ctx, c.key)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return cli.Negative("%v; nothing was done", v.NobodyLeads(ctx, c.key))
	case err != nil:
		return err
	case c.revisionSet && leader.Revision != c.revision:
		return cli.Negative("the record of %s, the leader of %q, has revision %d and not %d; nothing was done", terminal.Quote(leader.Name), c.key, leader.Revision, c.revision)
	}
	c.describe(v, leader)
	if err := c.Confirm(ctx, c.force, fmt.Sprintf("Evict %s from %q?", terminal.Quote(leader.Name), c.key)); err != nil {
		return err
	}
	evicted, err := v.Evict(ctx, leader, c.revision)
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
	problems := cli.Problems{validate.Key(c.key)}
	problems.If(c.revisionSet && c.revision == 0, "--revision 0: no record has this revision; %s shows the revision", c.NameCommand("info "+c.key))
	return problems.Err()
}

// describe writes the leader and the consequences of an eviction.
func (c *evictCommand) describe(v *look.View, h *look.Holder) {
	if c.force {
		return
	}
	if look.IsOtherData(h.Leader) {
		fmt.Fprintf(c.Stderr, "%s is stored under %q, and no record of an election; it was written %s.\n", terminal.Quote(h.Name), c.key, terminal.Ago(h.RenewalAge))
		return
	}
	since := ""
	if text := h.SinceText(); text != "" {
		since = " since " + text
	}
	verb := "leads"
	if h.State == look.StateLeaderElect {
		verb = "has won and is about to lead"
	}
	lease, then := "its lease ends in "+terminal.FormatDuration(max(h.TimeLeft, 0)), fmt.Sprintf("Then another candidate is elected, and leads after at least %s.", terminal.FormatDuration(v.TTL()))
	if v.ForSessions() {
		then = fmt.Sprintf("It keeps the other keys of its session. Then a session takes the key, this one too, and leads after at least %s.", terminal.FormatDuration(v.TTL()))
	}
	if !look.KeyExpires(h.Leader) {
		lease, then = "the bucket has no TTL", fmt.Sprintf("Nobody is elected then before %s has given the bucket a TTL.", c.NameCommand("bucket edit"))
	}
	fmt.Fprintf(c.Stderr, "%s %s %q%s, term %s; it renewed %s, and %s.\n", terminal.Quote(h.Name), verb, c.key, since, terminal.NumberOrDash(h.Term), terminal.Ago(h.RenewalAge), lease)
	fmt.Fprintf(c.Stderr, "It loses its term when it is notified, or at its next renewal. %s\n", then)
	fmt.Fprintf(c.Stderr, "%s hands over in order, and faster. If it is cut off or hangs, do not evict it: two candidates may lead until its lease ends. Wait for that: another candidate leads then, which is sooner.\n", c.NameCommand("resign "+c.key))
}
