package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election"
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
in which two led), "terms" (their numbers in the order in which they led), "missed" (what took longer than it may),
"samples", "longest_gap_ms" (between two samples), "duration_s", "server", "server_version" and "embedded".`

const (
	minCandidates, maxCandidates = 2, 50
	maxRounds                    = 1000
	cleanupPatience              = 5 * time.Second
)

// drill is the command of that name.
type drill struct {
	*tool
	candidates, rounds, replicas int
	ttl                          time.Duration
	json                         bool
	svg                          string
	embedded                     bool
	processes                    processFlags

	candidatesSet, ttlSet, roundsSet, replicasSet bool
}

func registerDrill(app *fisk.Application, t *tool) {
	d := &drill{tool: t}
	cmd := app.Command("drill", "Rehearses failovers and measures how long each takes").HelpLong(drillHelp + "\n\n" + processHelp).Action(action(d.run))
	cmd.Flag("candidates", fmt.Sprintf("How many candidates campaign (with --processes %d)", processCandidates)).Default("3").IsSetByUser(&d.candidatesSet).IntVar(&d.candidates)
	cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket: how long a lease lasts (with --processes %v)", processTTL)).Default("2s").IsSetByUser(&d.ttlSet).DurationVar(&d.ttl)
	cmd.Flag("rounds", "How many rounds to go through").Default("4").IsSetByUser(&d.roundsSet).IntVar(&d.rounds)
	cmd.Flag("replicas", fmt.Sprintf("Replicas of the bucket, on a server that is part of a cluster (with --processes %d)", clusterSize)).Default("1").IsSetByUser(&d.replicasSet).IntVar(&d.replicas)
	cmd.Flag("embedded", "Use an embedded server even if the environment names another").UnNegatableBoolVar(&d.embedded)
	cmd.Flag("json", "Write the result as JSON").UnNegatableBoolVar(&d.json)
	cmd.Flag("svg", "Draw the run as a timeline").PlaceHolder("FILE").StringVar(&d.svg)
	d.processes.register(cmd)
}

// run rehearses and reports.
func (d *drill) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	if d.processes.on {
		return d.runProcesses(ctx)
	}
	result, err := d.rehearse(ctx)
	if _, left := errors.AsType[leftover](err); ctx.Err() != nil && !left {
		return &verdict{exitInterrupted, "the drill was interrupted; what it had made on the server is removed"}
	}
	if result == nil {
		return err
	}
	shown := d.show(result.report, result.draw)
	return errors.Join(notPassed(result.report.complaint()), shown, err)
}

// runProcesses is run for a drill on processes.
func (d *drill) runProcesses(ctx context.Context) error {
	result, drawing, err := newProcessDrill(d).run(ctx)
	if ctx.Err() != nil {
		return &verdict{exitInterrupted, "the drill was interrupted; its processes have ended"}
	}
	if result == nil {
		return err
	}
	shown := d.show(result, drawing.write)
	complaint := result.complaint()
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
	return &verdict{exitNegative, complaint}
}

// settle gives flags that were left out the values that a drill on processes has for them.
func (d *drill) settle() {
	if d.processes.on && !d.candidatesSet {
		d.candidates = processCandidates
	}
	if d.processes.on && !d.ttlSet {
		d.ttl = processTTL
	}
	if d.processes.on && !d.replicasSet {
		d.replicas = clusterSize
	}
}

// check finds what is wrong with the flags before anything is begun.
func (d *drill) check() error {
	d.settle()
	problems := []error{checkTTL(d.ttl), d.processes.check(d.ttl, d.replicas)}
	if d.processes.on && (d.roundsSet || d.embedded || d.conn.givenByFlag()) {
		problems = append(problems, errors.New("--processes brings up a cluster of its own and has no rounds: leave out --server, --context, --embedded and --rounds"))
	}
	if d.candidates < minCandidates || d.candidates > maxCandidates {
		problems = append(problems, fmt.Errorf("--candidates %d: give %d to %d, for somebody must be there to take over", d.candidates, minCandidates, maxCandidates))
	}
	if d.rounds < 1 || d.rounds > maxRounds {
		problems = append(problems, fmt.Errorf("--rounds %d: give 1 to %d", d.rounds, maxRounds))
	}
	if d.replicas != 1 && d.replicas != 3 && d.replicas != 5 {
		problems = append(problems, fmt.Errorf("--replicas %d: give 1, 3 or 5", d.replicas))
	}
	if d.embedded && d.conn.givenByFlag() {
		problems = append(problems, errors.New("--embedded brings up a server of its own: leave out --server and --context, or --embedded"))
	}
	if d.svg != "" {
		problems = append(problems, checkWritable("--svg", d.svg))
	}
	return errors.Join(problems...)
}

// findings are the result of a drill.
type findings interface {
	table(w io.Writer, s style) error
}

// show writes the result where the user wants it, the drawing last: what was found is not to be lost with it.
func (d *drill) show(r findings, draw func(io.Writer) error) error {
	var err error
	if d.json {
		err = writeJSON(d.stdout, r)
	} else {
		err = r.table(d.stdout, styleFor(d.stdout))
	}
	return errors.Join(err, d.drawTo(draw))
}

// drawTo writes a drawing, if one is wanted.
func (d *drill) drawTo(draw func(io.Writer) error) error {
	if d.svg == "" {
		return nil
	}
	if err := writeFileAtomically(d.svg, draw); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	fmt.Fprintln(d.stderr, "Timeline written to", d.svg)
	return nil
}

// rehearse goes through all rounds on a server, in a bucket of its own that is removed in any case.
func (d *drill) rehearse(ctx context.Context) (r *rehearsal, err error) {
	embeddedServer := d.embedded || !d.conn.given()
	if embeddedServer {
		server, err := startEmbedded(embeddedConfig{})
		if err != nil {
			return nil, err
		}
		defer server.stop()
		d.conn = server.flags(d.conn.timeout)
	}
	operator, err := d.conn.connect(nats.Name("election-cli drill operator"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, err
	}
	defer operator.nc.Close()
	config := election.BucketConfig{Name: "ELECTION_DRILL_" + nuid.Next(), TTL: d.ttl, Replicas: d.replicas}
	bucket, err := election.CreateBucket(ctx, operator.js, config)
	if err != nil {
		if hopeless := operator.hopeless(config.Name, err); hopeless != nil {
			err = hopeless
		}
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // it may have been made all the same
			err = errors.Join(err, removeBucket(operator.js, config.Name))
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, removeBucket(operator.js, config.Name)) }()

	f, err := newFleet(ctx, d.conn, config.Name, d.candidates)
	if err != nil {
		return nil, err
	}
	defer f.close()
	r = newRehearsal(d, operator, bucket, f)
	r.report.Embedded = embeddedServer
	if err := r.run(ctx); err != nil { // its figures are worth nothing
		return nil, err
	}
	return r, nil
}

// removeBucket removes what the drill made, also after it was interrupted.
func removeBucket(js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
	defer cancel()
	err := js.DeleteKeyValue(ctx, name)
	if err == nil || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return leftover{fmt.Errorf("bucket %q could not be removed, do so with '%s': %w", name, onBucket("bucket rm", name), err)}
}

// leftover is an error that says what a drill could not remove.
type leftover struct{ error }
