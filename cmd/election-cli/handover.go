package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

const resignHelp = `The command asks the leader over NATS to give up leadership in order: its work ends first, then it releases the key, and another
candidate leads at once. The leader remains a candidate, but holds back for one campaign interval. Where no other candidate
answers, nobody would lead meanwhile, and the command asks before it goes on.

Only leaders answer that use this library and know their connection, as those of this tool do. It takes permission to publish
to election-control.BUCKET.resign.KEY.

With --json it writes one object: "key", "from", "leader" (as watch has it; null if nobody leads yet) and "took_ms".

Exit codes: 0 it has resigned; 1 it has not: there is no leader, or it does not answer; 2 wrong usage or any other error.`

const transferHelp = `The command asks the leader over NATS to hand over to the candidate of that name. The leader makes sure that this candidate is
ready, ends its work, and releases the key, and the candidate takes over at once. Nothing is done by force: if the transfer is
not possible, the leader leads on; if the leader has that name itself, there is nothing to do. 'election-cli candidates KEY'
shows which candidates are ready. The request takes permission to publish to election-control.BUCKET.transfer.KEY.

With --json it writes one object: "key", "from", "leader" and "took_ms".

Exit codes: 0 that candidate leads; 1 it does not: there is no leader, the leader does not answer, or the candidate is not there
or not ready; 2 wrong usage or any other error.`

// successorPatience is how long the successor of a leader that resigned is looked for.
const successorPatience = 2 * time.Second

// handoverCommand is the command resign, or transfer.
type handoverCommand struct {
	*cli.Env
	key, to string
	force   bool
	json    bool
}

// handoverReport is what was done, as --json prints it.
type handoverReport struct {
	Key    string           `json:"key"`
	From   string           `json:"from"`
	Leader *election.Leader `json:"leader"` // who leads now; null if nobody does yet
	TookMS float64          `json:"took_ms"`
}

func registerHandover(app *fisk.Application, t *cli.Env) {
	r := &handoverCommand{Env: t}
	cmd := app.Command("resign", "Asks a leader to resign").HelpLong(resignHelp).Action(cli.Action(r.run))
	cmd.Arg("key", "The election").Required().StringVar(&r.key)
	cmd.Flag("force", "Do not ask, even if no other candidate answers").UnNegatableBoolVar(&r.force)
	cmd.Flag("json", "Write JSON").UnNegatableBoolVar(&r.json)

	x := &handoverCommand{Env: t}
	cmd = app.Command("transfer", "Asks a leader to hand over to another candidate").HelpLong(transferHelp).Action(cli.Action(x.run))
	cmd.Arg("key", "The election").Required().StringVar(&x.key)
	cmd.Flag("to", "Name of the candidate that is to lead").Required().PlaceHolder("NAME").StringVar(&x.to)
	cmd.Flag("json", "Write JSON").UnNegatableBoolVar(&x.json)
}

// run asks the leader, and tells what became of it.
func (h *handoverCommand) run(ctx context.Context) error {
	view, err := look.Open(ctx, h.Env, "hand over")
	if err != nil {
		return cli.OrInterrupted(ctx, err)
	}
	defer view.Conn.Close()
	leader, err := view.Observer.Leader(ctx, h.key)
	if err != nil {
		return cli.OrInterrupted(ctx, h.undone(err))
	}
	if h.to == "" {
		if err := h.ask(ctx, view.Admin, leader); err != nil {
			return err
		}
	}
	began := time.Now()
	if h.to != "" {
		err = view.Admin.Transfer(ctx, h.key, h.to)
	} else {
		err = view.Admin.Resign(ctx, h.key)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.InDoubt(ctx, err, "whether %s hands over is not known ('election-cli info %s' shows who leads)", terminal.Printable(leader.Name), terminal.Printable(h.key))
	case err != nil:
		return h.undone(err)
	}
	return h.tell(ctx, view.Observer, leader, began)
}

// ask has the user confirm a resignation after which nobody might lead.
func (h *handoverCommand) ask(ctx context.Context, a *admin.Admin, leader election.Leader) error {
	candidates, err := a.Candidates(ctx, h.key)
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) { // who may only have the leader resign can confirm
		return cli.OrInterrupted(ctx, err)
	}
	for _, c := range candidates {
		if c.Ready {
			return nil
		}
	}
	return h.Confirm(ctx, h.force, fmt.Sprintf("No other candidate answers in %s: if %s resigns, there may be no leader for a while. Go on?", terminal.Printable(h.key), terminal.Printable(leader.Name)))
}

// undone returns the error of a request that was not granted, with the exit code that says so.
func (h *handoverCommand) undone(err error) error {
	if errors.Is(err, election.ErrNoLeader) {
		return &cli.ExitError{Code: cli.ExitNegative, Message: fmt.Sprintf("nobody leads %s: there is nobody to ask", terminal.Printable(h.key))}
	}
	text := terminal.PrintableUpTo(cli.InFlags(err).Error(), terminal.MaxValue) // that of a leader who refuses is somebody else's
	if errors.Is(err, election.ErrInvalidOption) {
		return errors.New(text)
	}
	return &cli.ExitError{Code: cli.ExitNegative, Message: text}
}

// tell looks who leads now, and says so.
func (h *handoverCommand) tell(ctx context.Context, o *observe.Observer, before election.Leader, began time.Time) error {
	r := handoverReport{Key: terminal.Printable(h.key), From: terminal.Printable(before.Name)}
	for patience := time.After(successorPatience); r.Leader == nil; {
		l, err := o.Leader(ctx, h.key)
		r.TookMS = float64(time.Since(began).Microseconds()) / 1000
		if err == nil && l.Term != 0 && (l.Instance != before.Instance || l.Name == h.to) {
			l = look.Shown(l)
			r.Leader = &l
			break
		}
		select {
		case <-patience:
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
			continue
		}
		break
	}
	switch {
	case h.json:
		return terminal.WriteJSON(h.Stdout, r)
	case r.Leader == nil:
		fmt.Fprintf(h.Stdout, "%s: %s has resigned; nobody else leads yet\n", r.Key, r.From)
	case r.Leader.Instance == terminal.Printable(before.Instance):
		fmt.Fprintf(h.Stdout, "%s: %s leads already, term %d\n", r.Key, r.From, r.Leader.Term)
	default:
		fmt.Fprintf(h.Stdout, "%s: %s has handed over to %s, term %d, in %.0f ms\n", r.Key, r.From, r.Leader.Name, r.Leader.Term, r.TookMS)
	}
	return nil
}
