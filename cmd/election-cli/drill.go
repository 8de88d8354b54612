package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/chaos"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
)

const drillHelp = `The drill runs on a JetStream server in this process, or on the server that --server, --context or the environment names. It
creates its own bucket there. Each candidate has its own connection. For example, with five candidates and a drawing:

    election-cli drill --candidates 5 --svg drill.svg

To see how your own candidates fail over, run 'election-cli watch KEY' while you stop the leader, or give 'election-cli resign KEY'.

In each round, under a new key, the drill rehearses:

    first election   the key is new, and the first candidate campaigns at once
    handover         the leader stops, and campaigns again later
    crash            the leader's link is cut; the leader still runs, and considers itself leader for a while
    eviction         an operator deletes the key

The drill measures the time from each fault until another term begins to count. Each millisecond it asks all candidates
whether they lead. Two candidates must never lead at once. The exit code is 1 if two candidates led at once, if no candidate
led in time, or if terms were out of order. If the drill could not ask for longer than a tenth of the TTL, the result says so.

The drill removes its bucket when it ends, even if it is interrupted. It does not touch elections in other buckets. If it
cannot remove the bucket, it still writes the result, and a drill that passed exits with 2.

With --alerts ADDR the drill measures nothing. It provokes the alerts of 'election-cli rules' until it is interrupted, each in an election of
its own, by candidates on servers in this process, and serves their metrics. Have Prometheus scrape it, and see each alert arrive:

    election-cli drill --alerts 0.0.0.0:9222

It lists what it does and after how long each alert fires. --alert NAME, which may be repeated, provokes these alerts only. When the drill ends,
ElectionScrapeMissing follows.

With --json the result is one object: "ttl_s", "candidates", "rounds", "faults" (a list, each with "kind": first-election, handover,
crash or eviction, "count", "failover_s": the times until a candidate led, and "bound_s"), "believed_s" (how long a leader considered
itself leader after its link was cut), "overlap_s" (the time in which two candidates led), "terms" (their number), "term_numbers" (in
order), "late" (the times without a leader that exceeded their bound, each with "at_s", "kind", "round" and "bound_s"; the kind is one of
those above or, before a fault, steady-state), "samples", "longest_gap_s" (the longest time between two samples), "duration_s",
"server", "server_version" and "embedded". Times "at_s" count from the beginning of the drill.`

// drillCommand is the command drill.
type drillCommand struct {
	*cli.Env
	config    drill.Config
	json      bool
	wide      bool
	svg       string
	embedded  bool
	processes processFlags
	alerts    alertFlags

	candidatesSet, ttlSet, roundsSet, replicasSet bool
}

func registerDrill(app *fisk.Application, t *cli.Env) {
	d := &drillCommand{Env: t}
	cmd := app.Command("drill", "Rehearses failovers and measures how long each failover takes").HelpLong(drillHelp + "\n\n" + chaos.Help).Action(cli.Action(d.run))
	cli.IntVar(cmd.Flag("candidates", fmt.Sprintf("Number of candidates (default 3; with --processes %d)", chaos.DefaultCandidates)).Default("3").IsSetByUser(&d.candidatesSet), &d.config.Candidates, 3)
	cli.DurationVar(cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket, which is the duration of a lease (default 2s; with --processes %v)", chaos.DefaultTTL)).Default("2s").IsSetByUser(&d.ttlSet), &d.config.TTL)
	cli.IntVar(cmd.Flag("rounds", "Number of rounds").Default("4").IsSetByUser(&d.roundsSet), &d.config.Rounds, 4)
	cli.IntVar(cmd.Flag("replicas", fmt.Sprintf("Replicas of the bucket; more than 1 needs a cluster (default 1; with --processes %d)", processes.ClusterSize)).Default("1").IsSetByUser(&d.replicasSet), &d.config.Replicas, 3)
	cmd.Flag("embedded", "Use an embedded server even if the environment names a server").UnNegatableBoolVar(&d.embedded)
	cli.JSONVar(cmd, "Write the result as JSON", &d.json)
	cli.WideVar(cmd, &d.wide)
	cmd.Flag("svg", "Draw the drill as a timeline, in an SVG file").PlaceHolder("FILE").StringVar(&d.svg)
	d.processes.register(cmd)
	d.alerts.register(cmd)
}

// run runs the drill and writes the result.
func (d *drillCommand) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.alerts.address != "" {
		return d.provokeAlerts(ctx)
	}
	if d.processes.on {
		return d.runProcesses(ctx)
	}
	d.config.Conn, d.config.Embedded, d.config.Progress = d.Connection, d.embedded || !d.Connection.NamesServer(), d.Stderr
	result, err := d.config.Run(ctx)
	if _, left := errors.AsType[drill.LeftoverError](err); ctx.Err() != nil && !left {
		return &cli.ExitError{Code: cli.ExitInterrupted, Message: "the drill was interrupted; it removed its bucket from the server"}
	}
	if result == nil {
		return err
	}
	written := d.writeResult(result.Report, result.Draw)
	return errors.Join(negative(result.Report.FailureReason()), written, err)
}

// runProcesses runs a drill with --processes and writes the result.
func (d *drillCommand) runProcesses(ctx context.Context) error {
	result, drawing, err := chaos.New(d.processes.Config).Run(ctx)
	if ctx.Err() != nil {
		return &cli.ExitError{Code: cli.ExitInterrupted, Message: "the drill was interrupted; its processes have ended"}
	}
	if result == nil {
		return err
	}
	written := d.writeResult(result, drawing.Write)
	reason := result.FailureReason()
	if reason != "" {
		reason += "\nhistories and logs are in " + result.Kept
	}
	return errors.Join(negative(reason), written, err)
}

// negative returns the error of a drill that failed for the given reason; nil if there is none.
func negative(reason string) error {
	if reason == "" {
		return nil
	}
	return cli.Negative("%s", reason)
}

// applyProcessDefaults applies the defaults of --processes to flags that the user did not set, and copies the flags for such a drill.
func (d *drillCommand) applyProcessDefaults() {
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
	p.Candidates, p.Replicas, p.TTL, p.Progress = d.config.Candidates, d.config.Replicas, d.config.TTL, d.Stderr
}

// check validates the flags before the drill connects or starts anything.
func (d *drillCommand) check() error {
	d.applyProcessDefaults()
	problems := cli.Problems{cli.CheckTTL(d.config.TTL), d.processes.check(), d.checkAlerts()}
	problems.If(d.processes.on && (d.roundsSet || d.embedded || d.Connection.NamesServerByFlag()), "--processes starts its own cluster and has no rounds: leave out --server, --context, --embedded and --rounds")
	problems.If(d.config.Candidates < drill.MinCandidates || d.config.Candidates > drill.MaxCandidates, "--candidates %d: give %d to %d; a failover needs a second candidate", d.config.Candidates, drill.MinCandidates, drill.MaxCandidates)
	problems.If(d.config.Rounds < 1 || d.config.Rounds > drill.MaxRounds, "--rounds %d: give 1 to %d", d.config.Rounds, drill.MaxRounds)
	problems.If(d.config.Replicas != 1 && d.config.Replicas != 3 && d.config.Replicas != 5, "--replicas %d: give 1, 3 or 5", d.config.Replicas)
	problems.If(d.embedded && d.Connection.NamesServerByFlag(), "--embedded starts its own server: leave out --server and --context, or leave out --embedded")
	if d.svg != "" {
		problems.Add(host.CheckWritable("--svg", d.svg))
	}
	return problems.Err()
}

// printer is the result of a drill, which can be written as text.
type printer interface {
	Print(w io.Writer, s terminal.Style) error
}

// writeResult writes the result and the drawing. It writes the result first, so that a drawing that cannot be written does not prevent that.
func (d *drillCommand) writeResult(r printer, draw func(io.Writer) error) error {
	var err error
	if d.json {
		err = terminal.WriteJSON(d.Stdout, r)
	} else {
		err = r.Print(d.Stdout, terminal.StyleFor(d.Stdout).Wide(d.wide))
	}
	return errors.Join(err, d.writeDrawing(draw))
}

// writeDrawing writes the drawing if --svg is set.
func (d *drillCommand) writeDrawing(draw func(io.Writer) error) error {
	if d.svg == "" {
		return nil
	}
	if err := host.ReplaceFile(d.svg, draw); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	fmt.Fprintln(d.Stderr, "Timeline written to", d.svg)
	return nil
}
