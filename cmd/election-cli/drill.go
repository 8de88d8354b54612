package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/chaos"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/files"
	"github.com/natscampaign/election/internal/processes"
	"github.com/natscampaign/election/internal/terminal"
)

const drillHelp = `It brings up a JetStream server in this process, or uses the one that --server or --context names, makes a bucket of its
own there, and has candidates campaign in one election after another, each on a connection of its own. In each round:

    first election   a new key; the first candidate campaigns at once
    handover         the leader stops, and later joins again
    crash            the leader's link is cut; it runs on, and considers itself leader for a while
    eviction         an operator deletes the key

The time until somebody leads runs from the fault to the first moment at which another term counts. Each millisecond all
candidates are asked whether they lead; two leaders at once must never be. The exit code is 1 if there were, if nobody led in
time, or if terms were out of order.

The bucket is removed afterwards, also when the drill is interrupted. Elections in other buckets are left alone. If it
cannot be removed the result is shown all the same, and the exit code is 2 for a drill that was passed.

With --json the result is one object: "ttl_s", "candidates", "rounds", the lists "first_election_s", "handover_s",
"crash_s", "evict_s" and "believed_s" (how long a leader still considered itself leader after its link was cut), "overlap_ms" (the time
in which two led), "terms" (their numbers in the order in which they led), "missed" (what took longer than
it may, each with "kind", "round" and "bound_s"), "samples", "longest_gap_ms" (between two samples), "duration_s", "server", "server_version" and "embedded".`

// drillCommand is the command of that name.
type drillCommand struct {
	*cli.Env
	config    drill.Config
	json      bool
	svg       string
	embedded  bool
	processes processFlags

	candidatesSet, ttlSet, roundsSet, replicasSet bool
}

func registerDrill(app *fisk.Application, t *cli.Env) {
	d := &drillCommand{Env: t}
	cmd := app.Command("drill", "Rehearses failovers and measures how long each takes").HelpLong(drillHelp + "\n\n" + processHelp).Action(cli.Action(d.run))
	cmd.Flag("candidates", fmt.Sprintf("How many candidates campaign (with --processes %d)", chaos.DefaultCandidates)).Default("3").IsSetByUser(&d.candidatesSet).IntVar(&d.config.Candidates)
	cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket: how long a lease lasts (with --processes %v)", chaos.DefaultTTL)).Default("2s").IsSetByUser(&d.ttlSet).DurationVar(&d.config.TTL)
	cmd.Flag("rounds", "How many rounds to go through").Default("4").IsSetByUser(&d.roundsSet).IntVar(&d.config.Rounds)
	cmd.Flag("replicas", fmt.Sprintf("Replicas of the bucket, on a server that is part of a cluster (with --processes %d)", processes.ClusterSize)).Default("1").IsSetByUser(&d.replicasSet).IntVar(&d.config.Replicas)
	cmd.Flag("embedded", "Use an embedded server even if the environment names another").UnNegatableBoolVar(&d.embedded)
	cmd.Flag("json", "Write the result as JSON").UnNegatableBoolVar(&d.json)
	cmd.Flag("svg", "Draw the run as a timeline").PlaceHolder("FILE").StringVar(&d.svg)
	d.processes.register(cmd)
}

// run rehearses and reports.
func (d *drillCommand) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.processes.on {
		return d.runProcesses(ctx)
	}
	d.config.Conn, d.config.Embedded, d.config.Progress = d.Connection, d.embedded || !d.Connection.Named(), d.Stderr
	result, err := d.config.Run(ctx)
	if _, left := errors.AsType[drill.LeftoverError](err); ctx.Err() != nil && !left {
		return &cli.ExitError{Code: cli.ExitInterrupted, Message: "the drill was interrupted; what it had made on the server is removed"}
	}
	if result == nil {
		return err
	}
	shown := d.show(result.Report, result.Draw)
	return errors.Join(notPassed(result.Report.Complaint()), shown, err)
}

// runProcesses is run for a drill on processes.
func (d *drillCommand) runProcesses(ctx context.Context) error {
	result, drawing, err := chaos.New(d.processes.Config).Run(ctx)
	if ctx.Err() != nil {
		return &cli.ExitError{Code: cli.ExitInterrupted, Message: "the drill was interrupted; its processes have ended"}
	}
	if result == nil {
		return err
	}
	shown := d.show(result, drawing.Write)
	complaint := result.Complaint()
	if complaint != "" {
		complaint += "\nhistories and logs are in " + result.Kept
	}
	return errors.Join(notPassed(complaint), shown, err)
}

// notPassed returns what becomes of a drill with a complaint; nil if there is none.
func notPassed(complaint string) error {
	if complaint == "" {
		return nil
	}
	return &cli.ExitError{Code: cli.ExitNegative, Message: complaint}
}

// settle gives flags that were left out the values that a drill on processes has for them.
func (d *drillCommand) settle() {
	if d.processes.on && !d.candidatesSet {
		d.config.Candidates = chaos.DefaultCandidates
	}
	if d.processes.on && !d.ttlSet {
		d.config.TTL = chaos.DefaultTTL
	}
	if d.processes.on && !d.replicasSet {
		d.config.Replicas = processes.ClusterSize
	}
	p := &d.processes
	p.Candidates, p.Replicas, p.TTL, p.Out = d.config.Candidates, d.config.Replicas, d.config.TTL, d.Stderr
}

// check finds what is wrong with the flags before anything is begun.
func (d *drillCommand) check() error {
	d.settle()
	problems := []error{cli.CheckTTL(d.config.TTL), d.processes.check()}
	if d.processes.on && (d.roundsSet || d.embedded || d.Connection.NamedByFlag()) {
		problems = append(problems, errors.New("--processes brings up a cluster of its own and has no rounds: leave out --server, --context, --embedded and --rounds"))
	}
	if d.config.Candidates < drill.MinCandidates || d.config.Candidates > drill.MaxCandidates {
		problems = append(problems, fmt.Errorf("--candidates %d: give %d to %d, for somebody must be there to take over", d.config.Candidates, drill.MinCandidates, drill.MaxCandidates))
	}
	if d.config.Rounds < 1 || d.config.Rounds > drill.MaxRounds {
		problems = append(problems, fmt.Errorf("--rounds %d: give 1 to %d", d.config.Rounds, drill.MaxRounds))
	}
	if d.config.Replicas != 1 && d.config.Replicas != 3 && d.config.Replicas != 5 {
		problems = append(problems, fmt.Errorf("--replicas %d: give 1, 3 or 5", d.config.Replicas))
	}
	if d.embedded && d.Connection.NamedByFlag() {
		problems = append(problems, errors.New("--embedded brings up a server of its own: leave out --server and --context, or --embedded"))
	}
	if d.svg != "" {
		problems = append(problems, files.CheckWritable("--svg", d.svg))
	}
	return errors.Join(problems...)
}

// findings are the result of a drill.
type findings interface {
	Print(w io.Writer, s terminal.Style) error
}

// show writes the result where the user wants it, the drawing last: what was found is not to be lost with it.
func (d *drillCommand) show(r findings, draw func(io.Writer) error) error {
	var err error
	if d.json {
		err = terminal.WriteJSON(d.Stdout, r)
	} else {
		err = r.Print(d.Stdout, terminal.StyleFor(d.Stdout))
	}
	return errors.Join(err, d.drawTo(draw))
}

// drawTo writes a drawing, if one is wanted.
func (d *drillCommand) drawTo(draw func(io.Writer) error) error {
	if d.svg == "" {
		return nil
	}
	if err := files.Replace(d.svg, draw); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	fmt.Fprintln(d.Stderr, "Timeline written to", d.svg)
	return nil
}
