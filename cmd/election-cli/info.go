package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

const (
	infoHelp = `Without KEY the command describes the bucket: its replicas, the leader of each election, and each problem with its fix. The tests take
some seconds if permissions are missing. The command writes nothing.

Example: election-cli info scheduler

Without KEY, --json writes one object: ` + bucketFields + `.

With KEY the command describes one election, and --json writes one object: "key", "bucket", and "leader", which is null or an
object: ` + look.HolderHelp + `.

Times are by the server's clock, except "since" and "started", which are by the leader's clock. The exit code is 1 if nobody leads
the election KEY or, without KEY, if elections do not work in this bucket or are not safe.`

	bucketInfoHelp = `The description has the bucket's replicas, the leader of each election, and each problem with its fix. The tests take some seconds if
permissions are missing. The command writes nothing.

Example: election-cli bucket info --bucket TEST_ELECTION

With --json the result is one object: ` + bucketFields + `.

Times are by the server's clock, except "since" and "started", which are by the leader's clock. The exit code is 1 if elections do not
work in this bucket or are not safe.`

	bucketFields = `"bucket", "server", "created", "ttl_s", "history", "storage", "replicas", "markers_ttl_s" (0
if the server writes no expiry markers), "republish" (the subject), "bytes", "consumers", "cluster", "peers" (each with "name",
"leader", "current", "offline", "lag", "seen_s"), "elections" (as in 'ls --json'), "paused" (the keys of paused elections) and
"findings" (each with "code", "severity", "message", "fix")`
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
	cmd := app.Command("info", "Describes the bucket, or one election").HelpLong(infoHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cli.JSONVar(cmd, "Write the result as JSON", &c.json)
	cli.WideVar(cmd, &c.wide)
}

// run describes the bucket or the election.
func (c *infoCommand) run(ctx context.Context) error {
	if c.key != "" {
		if err := cli.CheckKey(c.key, false); err != nil {
			return err
		}
	}
	v, err := look.Open(ctx, c.Env, "info")
	if err != nil {
		return cli.InterruptedOr(ctx, err)
	}
	defer v.Conn.Close()
	if c.key == "" {
		return cli.InterruptedOr(ctx, c.describeBucket(ctx, v))
	}
	return cli.InterruptedOr(ctx, c.describeElection(ctx, v))
}

// describeElection describes one election.
func (c *infoCommand) describeElection(ctx context.Context, v *look.View) error {
	leader, err := v.Leader(ctx, c.key)
	vacant := errors.Is(err, election.ErrNoLeader)
	if err != nil && !vacant {
		return err
	}
	if c.json {
		err = terminal.WriteJSON(c.Stdout, look.ElectionInfo{Key: c.key, Bucket: v.Bucket.Bucket(), Leader: leader, Paused: v.IsPaused(c.key)})
	} else if !vacant {
		err = c.printElection(v, leader)
	} else {
		err = nil
	}
	if err == nil && vacant {
		return nobodyLeads(v, c.key)
	}
	return err
}

// nobodyLeads returns the error for an election without a leader.
func nobodyLeads(v *look.View, key string) *cli.ExitError {
	message := fmt.Sprintf("nobody leads %s in bucket %s on %s", key, v.Bucket.Bucket(), v.ServerURL())
	if v.IsPaused(key) {
		message += fmt.Sprintf(": it is paused, and no candidate campaigns until 'election-cli resume %s'", key)
	}
	return &cli.ExitError{Code: cli.ExitNegative, Message: message}
}

// printElection writes the description of an election for people.
func (c *infoCommand) printElection(v *look.View, h *look.Holder) error {
	st := terminal.StyleFor(c.Stdout)
	if _, err := fmt.Fprintf(c.Stdout, "%s\n\n", st.Paint(terminal.Bold, fmt.Sprintf("Election %s in bucket %s on %s", h.Key, v.Bucket.Bucket(), v.ServerURL()))); err != nil {
		return err
	}
	state := h.State
	switch h.State {
	case look.StateLeaderElect:
		state += ": leadership does not count before the first renewal after the stand-down"
	case look.StatePlain:
		state += ": a bare name, which does not say whether leadership counts"
	}
	var list terminal.PropertyList
	list.Add("Leader", h.Name)
	list.Add("State", state)
	list.Add("Since", h.HeldSince(v.Clock.Now()))
	if h.Term != 0 {
		list.Add("Term", terminal.NumberOrDash(h.Term))
	}
	list.Add("Token", h.Token)
	list.Add("Renewed", terminal.Timestamp(h.Renewed)+" ("+terminal.Ago(h.RenewalAge)+")")
	expires := "in " + terminal.FormatDuration(h.TimeLeft)
	if h.TimeLeft < 0 {
		expires = terminal.FormatDuration(-h.TimeLeft) + " ago, and is about to be removed"
	}
	list.Add("Expires", terminal.Timestamp(h.Expires)+" ("+expires+")")
	list.Add("Host", h.Host)
	if h.PID != 0 {
		list.Add("Process", fmt.Sprint(h.PID))
	}
	list.Add("Instance", h.Instance)
	list.Add("Revision", terminal.NumberOrDash(h.Revision))
	if h.Paused {
		list.Add("Paused", "candidates do not campaign until 'election-cli resume "+h.Key+"'")
	}
	label := "Metadata"
	for _, k := range slices.Sorted(maps.Keys(h.Metadata)) {
		list.Add(label, k+"="+h.Metadata[k])
		label = ""
	}
	return list.Print(c.Stdout, st)
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
		err = look.PrintFindings(c.Stdout, st, b.Findings, admin.SeverityWarning)
	}
	if err == nil && b.Unfit() {
		return &cli.ExitError{Code: cli.ExitNegative}
	}
	return err
}
