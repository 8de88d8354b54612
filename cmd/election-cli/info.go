package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

const infoHelp = `Without KEY it describes the bucket and its replicas, the leader of each election, and what is wrong for elections, with the
fix. Its tests take some seconds where permissions are missing; nothing is written.

With --json that is one object: "bucket", "server", "created", "ttl_s", "history", "storage", "replicas", "markers_ttl_s"
(0 if expiries are not announced), "republish" (the subject), "bytes", "consumers", "cluster", "peers" (each "name",
"leader", "current", "offline", "lag", "seen_s"), "elections" (as ls has them), "paused" (the keys of paused elections) and
"findings" (each "code", "severity", "message", "fix").

With KEY it describes that election. With --json that is one object: "key", "bucket", and "leader", which is null or
an object: ` + look.HolderHelp + `.

Times are by the server's clock, but "since" and "started" by the leader's. The exit code is 1 if nobody leads in the election
KEY or, without KEY, if elections do not work in this bucket or are not safe.`

// infoCommand is the command of that name.
type infoCommand struct {
	*cli.Env
	key  string
	json bool
}

func registerInfo(app *fisk.Application, t *cli.Env) {
	c := &infoCommand{Env: t}
	cmd := app.Command("info", "Describes the bucket, or one election").HelpLong(infoHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").StringVar(&c.key)
	cmd.Flag("json", "Write it as JSON").UnNegatableBoolVar(&c.json)
}

// run tells what is asked for.
func (c *infoCommand) run(ctx context.Context) error {
	if c.key != "" {
		if err := cli.CheckKey(c.key, false); err != nil {
			return err
		}
	}
	v, err := look.Open(ctx, c.Env, "info")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer v.Conn.Close()
	if c.key == "" {
		return cli.OrInterrupted(ctx, c.ofBucket(ctx, v))
	}
	return cli.OrInterrupted(ctx, c.ofElection(ctx, v))
}

// ofElection tells about one election.
func (c *infoCommand) ofElection(ctx context.Context, v *look.View) error {
	leader, err := v.Leader(ctx, c.key)
	nobody := errors.Is(err, election.ErrNoLeader)
	if err != nil && !nobody {
		return err
	}
	if c.json {
		err = terminal.WriteJSON(c.Stdout, look.Election{Key: c.key, Bucket: v.Bucket.Bucket(), Leader: leader})
	} else if !nobody {
		var paused []string
		if paused, err = v.Paused(ctx); err == nil {
			err = c.showElection(v, leader, paused)
		}
	} else {
		err = nil
	}
	if err == nil && nobody {
		return nobodyLeads(v, c.key)
	}
	return err
}

// nobodyLeads is the verdict on a key that nobody holds.
func nobodyLeads(v *look.View, key string) *cli.ExitError {
	return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf("nobody leads %s in bucket %s on %s", key, v.Bucket.Bucket(), v.ServerURL())}
}

// showElection tells about an election in words.
func (c *infoCommand) showElection(v *look.View, s *look.Holder, paused []string) error {
	st := terminal.StyleFor(c.Stdout)
	if _, err := fmt.Fprintf(c.Stdout, "%s\n\n", st.Paint(terminal.Bold, fmt.Sprintf("Election %s in bucket %s on %s", s.Key, v.Bucket.Bucket(), v.ServerURL()))); err != nil {
		return err
	}
	state := s.State
	switch s.State {
	case look.StateLeaderElect:
		state += ": leadership does not count yet, but from the first renewal after the stand-down"
	case look.StatePlain:
		state += ": a bare name, which does not say whether leadership counts"
	}
	var lines terminal.Sheet
	lines.Add("Leader", s.Name)
	lines.Add("State", state)
	lines.Add("Since", s.HeldSince(v.Clock.Now()))
	if s.Term != 0 {
		lines.Add("Term", terminal.TermNumber(s.Term))
	}
	lines.Add("Token", s.Token)
	lines.Add("Renewed", terminal.Timestamp(s.Renewed)+" ("+terminal.Ago(s.Age)+")")
	expires := "in " + terminal.Human(s.Left)
	if s.Left < 0 {
		expires = terminal.Human(-s.Left) + " ago, and is about to be removed"
	}
	lines.Add("Expires", terminal.Timestamp(s.Expires)+" ("+expires+")")
	lines.Add("Host", s.Host)
	if s.PID != 0 {
		lines.Add("Process", fmt.Sprint(s.PID))
	}
	lines.Add("Instance", s.Instance)
	lines.Add("Revision", terminal.TermNumber(s.Revision))
	if slices.Contains(paused, s.Key) {
		lines.Add("Paused", "candidates do not campaign until 'election-cli resume "+s.Key+"'")
	}
	label := "Metadata"
	for _, k := range terminal.SortedKeys(s.Metadata) {
		lines.Add(label, k+"="+s.Metadata[k])
		label = ""
	}
	return lines.Print(c.Stdout, st)
}

// ofBucket tells about the bucket.
func (c *infoCommand) ofBucket(ctx context.Context, v *look.View) error {
	b, err := v.Report(ctx)
	if err != nil {
		return err
	}
	if c.json {
		err = terminal.WriteJSON(c.Stdout, b)
	} else if err = b.Print(c.Stdout, v); err == nil {
		err = look.PrintFindings(c.Stdout, terminal.StyleFor(c.Stdout), b.Findings, admin.SeverityWarning)
	}
	if err == nil && b.Unfit() {
		return &cli.ExitError{Code: cli.ExitNegative}
	}
	return err
}
