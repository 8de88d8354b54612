package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const resignHelp = `The command asks the leader to resign: the leader ends its work, then releases the key, and another candidate leads at once. The
command waits for that, for as long as the leader lets its work take. The resigned leader remains a candidate, but does not
campaign for one campaign interval. If no other candidate is ready, there would be no leader for that time, so the command asks
first.

Example: election-cli resign scheduler

Only a leader that uses this library and knows its connection answers; the candidates of this command do. The request needs
permission to publish to election-control.BUCKET.resign.KEY, and to subscribe to election-answers.BUCKET.*.KEY.

With --json the result is one object: "key", "from", "leader" (as in 'watch --json'; null if nobody leads yet) and "took_s".

Exit codes: 0 if the leader has resigned; 1 if it has not, because there is no leader or the leader does not answer; 2 for wrong
usage and any other error.`

const transferHelp = `The command asks the leader to hand over to the named candidate. The leader checks that the candidate is ready, ends its work, and
releases the key; the candidate leads at once. If the transfer is not possible, the leader keeps leading. If the leader is the only
candidate of that name, the command does nothing. If several candidates have the name, the first that answers and is ready takes
over; give its instance instead of its name to choose one. 'election-cli candidates KEY' shows which candidates are ready, and the
instances of candidates that share a name. The request needs permission to publish to election-control.BUCKET.transfer.KEY, and to
subscribe to election-answers.BUCKET.*.KEY.

Example: election-cli transfer scheduler --to web-2

With --json the result is one object: "key", "from", "leader" and "took_s".

Exit codes: 0 if the named candidate leads; 1 if it does not, because there is no leader, the leader does not answer, or the
candidate does not answer or is not ready; 2 for wrong usage and any other error.`

// After these times the commands say what they wait for. A leader that does not find the target of a transfer has said so before slowHandover.
const (
	slowHandover  = 1500 * time.Millisecond
	slowSuccessor = 250 * time.Millisecond
)

// handoverCommand implements resign and, if to is not empty, transfer.
type handoverCommand struct {
	*cli.Env
	key, to string
	force   bool
	json    bool
}

// handoverReport is the result in the JSON output.
type handoverReport struct {
	Key    string           `json:"key"`
	From   string           `json:"from"`
	Leader *election.Leader `json:"leader"` // the new leader; null if nobody leads yet
	Took   timeutil.Seconds `json:"took_s"`
}

func registerHandover(app *fisk.Application, env *cli.Env) {
	resign := &handoverCommand{Env: env}
	cmd := app.Command("resign", "Asks a leader to resign").HelpLong(resignHelp).Action(cli.Request(resign.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&resign.key)
	cli.ForceVar(cmd, "Do not ask, even if no other candidate is ready", &resign.force)
	cli.JSONVar(cmd, "Write the result as JSON", &resign.json)

	transfer := &handoverCommand{Env: env}
	cmd = app.Command("transfer", "Asks a leader to hand over to another candidate").HelpLong(transferHelp).Action(cli.Request(transfer.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&transfer.key)
	cmd.Flag("to", "Name or instance of the candidate that should lead").Required().PlaceHolder("NAME").StringVar(&transfer.to)
	cli.JSONVar(cmd, "Write the result as JSON", &transfer.json)
}

// run sends the request to the leader, and reports the new leader.
func (h *handoverCommand) run(ctx context.Context) error {
	v, err := look.Open(ctx, h.Env, "hand over")
	if err != nil {
		return err
	}
	defer v.Conn.Close()
	leader, err := v.Observer.Leader(ctx, h.key)
	if err != nil {
		return h.notDone(ctx, v, err)
	}
	if h.to == "" {
		if err := h.confirm(ctx, v, leader); err != nil {
			return err
		}
	}
	began := time.Now()
	h.await(slowHandover, "waiting for "+terminal.Quote(leader.Name)+": a leader ends its work first", func() {
		if h.to != "" {
			err = v.Admin.Transfer(ctx, h.key, h.to)
		} else {
			err = v.Admin.Resign(ctx, h.key)
		}
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.UnknownOutcome(ctx, err, "it is not known whether %s hands over: run %s", terminal.Quote(leader.Name), h.NameCommand("info "+h.key))
	case errors.Is(err, control.ErrNoAnswer):
		return h.notAnswered(ctx, v, leader)
	case err != nil:
		return h.notDone(ctx, v, err)
	}
	return h.report(ctx, v, leader, began)
}

// await does something, and says what it waits for if that is slow.
func (h *handoverCommand) await(slow time.Duration, notice string, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(slow):
		fmt.Fprintln(h.Stderr, notice)
		<-done
	}
}

// confirm asks the user if no other candidate is ready, because nobody might lead after the resignation.
func (h *handoverCommand) confirm(ctx context.Context, v *look.View, leader election.Leader) error {
	candidates, err := v.Admin.Candidates(ctx, h.key)
	refused := errors.Is(err, nats.ErrPermissionViolation) // a user without this permission may still resign the leader
	if err != nil && !refused {
		return err
	}
	for _, c := range candidates {
		if c.Ready {
			return nil
		}
	}
	key, name := terminal.Quote(h.key), terminal.Quote(leader.Name)
	switch {
	case v.IsPaused(h.key):
		return h.Confirm(ctx, h.force, fmt.Sprintf("%s is paused: if %s resigns, nobody leads until %s. Continue?", key, name, h.resume()))
	case refused:
		return h.Confirm(ctx, h.force, fmt.Sprintf("It is not known whether another candidate is ready in %s, because this user may not ask: if %s resigns, there may be no leader for a while. Continue?", key, name))
	}
	return h.Confirm(ctx, h.force, fmt.Sprintf("No other candidate is ready in %s: if %s resigns, there may be no leader for a while. Continue?", key, name))
}

// notDone returns the error of a request that failed or that the leader refused.
func (h *handoverCommand) notDone(ctx context.Context, v *look.View, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, election.ErrNoLeader):
		return v.NobodyLeads(ctx, h.key)
	case errors.Is(err, nats.ErrPermissionViolation):
		return cli.Negative("%v", h.Connection.Explain(err))
	}
	text := terminal.PrintableUpTo(cli.AsFlagError(err).Error(), terminal.MaxValue) // the text of a refusal comes from the leader, so it is untrusted
	switch {
	case errors.Is(err, election.ErrInvalidOption):
		return errors.New(text)
	case errors.Is(err, control.ErrUnderWay):
		text += fmt.Sprintf("; %s waits for the release", h.NameCommand("wait "+h.key+" --vacant"))
	case errors.Is(err, election.ErrNoCandidate):
		text += fmt.Sprintf("; %s lists the candidates", h.NameCommand("candidates "+h.key))
		if v.IsPaused(h.key) {
			text += fmt.Sprintf(", and %s ends the pause", h.resume())
		}
	}
	return cli.Negative("%s", text)
}

// notAnswered returns the error of a request that the leader did not answer, with what to do: a leader that is cut off or hangs must not be evicted,
// because it may lead until its lease ends, and its successor leads sooner without that.
func (h *handoverCommand) notAnswered(ctx context.Context, v *look.View, asked election.Leader) error {
	now, err := v.Leader(ctx, h.key)
	name := terminal.Quote(asked.Name)
	switch {
	case errors.Is(err, election.ErrNoLeader):
		return cli.Negative("%s does not answer; %v", name, v.NobodyLeads(ctx, h.key))
	case err != nil:
		return err
	case now.Instance != terminal.Printable(asked.Instance):
		return cli.Negative("%s does not answer, and %s leads %s now", name, terminal.Quote(now.Name), terminal.Quote(h.key))
	}
	if !look.KeyExpires(now.Leader) {
		return cli.Negative("%s does not answer, and the bucket has no TTL, without which nobody takes over\nFix: run %s, and try again", name, h.NameCommand("bucket edit"))
	}
	then := "another candidate leads then, sooner than after an eviction, and safely"
	if v.IsPaused(h.key) {
		then = "nobody leads then until " + h.resume()
	}
	wait := fmt.Sprintf("wait %s for the end of its lease", terminal.FormatDuration(max(now.TimeLeft, 0)))
	message := fmt.Sprintf("%s does not answer, and has not renewed for %s: it is cut off or hangs\nFix: %s: %s", name, terminal.FormatDuration(now.RenewalAge), wait, then)
	if now.RenewalAge < timing.RenewalOverdue(now.RenewalInterval(v.TTL()), v.TTL()) {
		process := "its program"
		if now.PID != 0 {
			process = fmt.Sprintf("process %d on %s", now.PID, cmp.Or(now.Host, "its host"))
		}
		message = fmt.Sprintf("%s does not answer: it is cut off, hangs, or cannot be asked\nFix: %s: unless it renews, %s. If %s shows that it has renewed, it cannot be asked: stop %s, or run %s",
			name, wait, then, h.NameCommand("info "+h.key), process, h.NameCommand("evict "+h.key))
	}
	return cli.Negative("%s", message)
}

// report waits for the successor, and writes the result.
func (h *handoverCommand) report(ctx context.Context, v *look.View, before election.Leader, began time.Time) error {
	r := handoverReport{Key: terminal.Printable(h.key), From: terminal.Printable(before.Name)}
	paused := h.to == "" && v.IsPaused(h.key)
	if !paused {
		notice := fmt.Sprintf("%s has resigned, waiting up to %v for the next leader", terminal.Quote(before.Name), look.SuccessorTimeout)
		h.await(slowSuccessor, notice, func() { r.Leader = v.WaitForSuccessor(ctx, h.key, before, h.to) })
	}
	leader := look.PrintableLeader(before)
	from, key := terminal.Quote(r.From), terminal.Quote(r.Key)
	r.Took = timeutil.Seconds(time.Since(began).Round(time.Microsecond))
	switch {
	case h.json:
		return terminal.WriteJSON(h.Stdout, r)
	case paused:
		fmt.Fprintf(h.Stdout, "%s has resigned; %s is paused, and nobody leads until %s\n", from, key, h.resume())
	case r.Leader == nil:
		fmt.Fprintf(h.Stdout, "%s has resigned; nobody leads %s yet: %s waits for a leader\n", from, key, h.NameCommand("wait "+h.key))
	case r.Leader.Instance == terminal.Printable(before.Instance) && r.Leader.Term > before.Revision:
		fmt.Fprintf(h.Stdout, "%s has resigned, and leads %s again, term %d\n", from, key, r.Leader.Term)
	case r.Leader.Instance == terminal.Printable(before.Instance):
		fmt.Fprintf(h.Stdout, "%s leads %s already, term %d\n", from, key, r.Leader.Term)
	default:
		fmt.Fprintf(h.Stdout, "%s has handed over %s to %s, term %d, in %d ms\n", describe(leader, *r.Leader), key, describe(*r.Leader, leader), r.Leader.Term, time.Duration(r.Took).Round(time.Millisecond).Milliseconds())
	}
	return nil
}

// resume names the command that ends the pause of the election.
func (h *handoverCommand) resume() string { return h.NameCommand("resume " + h.key) }

// describe returns how a leader is called beside another: by its name and, if both have that name, by what else distinguishes it.
func describe(leader, other election.Leader) string {
	name := terminal.Quote(leader.Name)
	switch {
	case leader.Name != other.Name:
		return name
	case leader.PID != other.PID, leader.Host != other.Host:
		return fmt.Sprintf("%s (process %d on %s)", name, leader.PID, terminal.Printable(cmp.Or(leader.Host, "an unknown host")))
	}
	return fmt.Sprintf("%s (instance %s)", name, terminal.Printable(leader.Instance))
}
