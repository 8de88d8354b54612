package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

const candidatesHelp = `Every candidate answers for itself, now: its name and host, whether it leads, whether it is ready to take over (it would be
notified of a vacancy now, and answer it), its priority, the version of this library that it runs, and by how much its clock is
behind the server's (negative: ahead). The round trip to the candidate makes that uncertain by half the time it takes.

Only candidates answer that use this library and know their connection, as those of this tool do. They are a NATS micro
service called "election", which 'nats micro ls' shows too. The request takes permission to publish to
election-control.BUCKET.candidates.KEY.

With --json it writes an array of objects with "name", "instance", "host", "pid", "state", "ready", "priority",
"version" and "clock_lag_ms". Without a terminal the columns are separated by tabs, in the order of the table.

Exit codes: 0 somebody answers; 1 nobody does; 2 wrong usage or any other error.`

// candidatesCommand is the command of that name.
type candidatesCommand struct {
	*cli.Env
	key  string
	json bool
}

// candidateReport is a candidate as --json prints it.
type candidateReport struct {
	Name       string         `json:"name"`
	Instance   string         `json:"instance"`
	Host       string         `json:"host"`
	PID        int            `json:"pid"`
	State      election.State `json:"state"`
	Ready      bool           `json:"ready"`
	Priority   int            `json:"priority"`
	Version    string         `json:"version"`
	ClockLagMS float64        `json:"clock_lag_ms"`
}

func registerCandidates(app *fisk.Application, t *cli.Env) {
	c := &candidatesCommand{Env: t}
	cmd := app.Command("candidates", "Lists the candidates that answer").HelpLong(candidatesHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election").Required().StringVar(&c.key)
	cmd.Flag("json", "Write JSON").UnNegatableBoolVar(&c.json)
}

// run asks the candidates.
func (c *candidatesCommand) run(ctx context.Context) error {
	view, err := look.Open(ctx, c.Env, "candidates")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer view.Conn.Close()
	found, err := view.Admin.Candidates(ctx, c.key)
	if err != nil {
		return cli.OrInterrupted(ctx, cli.InFlags(err))
	}
	if err := c.write(found); err != nil {
		return err
	}
	leader, err := view.Observer.Leader(ctx, c.key)
	if err != nil && !errors.Is(err, election.ErrNoLeader) {
		return cli.OrInterrupted(ctx, err)
	}
	answers := slices.ContainsFunc(found, func(f admin.Candidate) bool { return f.Instance == leader.Instance })
	if leader.Name != "" && !answers {
		fmt.Fprintf(c.Stderr, "%s holds the key, and does not answer\n", terminal.Printable(leader.Name))
	}
	if len(found) == 0 {
		return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf("no candidate answers in %s", terminal.Printable(c.key))}
	}
	return nil
}

// write writes the candidates for people or programs.
func (c *candidatesCommand) write(found []admin.Candidate) error {
	reports := []candidateReport{}
	g := &terminal.Table{Title: "Candidates in " + terminal.Printable(c.key), Header: []string{"Name", "State", "Ready", "Priority", "Host", "PID", "Version", "Clock lag"}}
	for _, f := range found {
		r := candidateReport{
			Name: terminal.Printable(f.Name), Instance: terminal.Printable(f.Instance), Host: terminal.Printable(f.Host), PID: f.PID,
			State: f.State, Ready: f.Ready, Priority: f.Priority, Version: terminal.Printable(f.Version), ClockLagMS: float64(f.ClockLag.Microseconds()) / 1000,
		}
		reports = append(reports, r)
		g.Add(r.Name, r.State.String(), yesNo(r.Ready), strconv.Itoa(r.Priority), r.Host, strconv.Itoa(r.PID), r.Version, f.ClockLag.Round(time.Millisecond).String())
	}
	if c.json {
		return terminal.WriteJSON(c.Stdout, reports)
	}
	if len(found) == 0 {
		return nil
	}
	return g.Print(c.Stdout)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
