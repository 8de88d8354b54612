package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/serving"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/witness"
)

const campaignHelp = `The command is a candidate in the election KEY until INT or TERM interrupts it. Then it stops leading, releases the key, and
exits with 0. It waits for an unreachable server.

Example: election-cli campaign scheduler --name web-1 --status :8222

Each event is a line on stdout. With --json each event is one JSON object with "time" (RFC 3339), "event", "election" (the key),
"name" and "state" (unknown, candidate, leader-elect, leader), and with "term", "token" (the fencing token), "reason", "leader" and
"led_s" or "leads_in_s" (of the stand-down) where they apply. The first event also has "bucket", "ttl_s" and "server". The events are:

    started    the candidate campaigns from now on
    following  another candidate holds the key: "leader"; if it does not lead yet, it does within "leads_in_s"
    elected    the candidate won the key; its leadership counts after the stand-down, if there is one: "leads_in_s"
    leading    the candidate leads from now on
    lost       the candidate no longer leads, or gave up the key before it led: "reason", "led_s"
    released   the candidate released the key
    stopped    the candidate left the election
    dropped    the output was not read in time, and "dropped" events are missing here

Reasons are vacant, released, reclaimed or lapsed (elected), stood-down (leading), stopped, resigned, transferred, relinquished,
unhealthy, work-ended, overwritten, deleted, bucket-replaced, cloned, rewound, closed or deadline (lost).

If ELECTION_WITNESS names the socket of a witness, as in unix:///run/election/witness.sock, that witness releases the key if this
process is killed: see 'election-cli witness --help'.

` + cli.HealthHelp + `

` + serving.Help

// campaignDefaultTTL is the TTL of the bucket on an embedded server. It is short, so that a user can watch a failover.
const campaignDefaultTTL = 5 * time.Second

// campaignCommand implements campaign. The command file adds work for the leader.
type campaignCommand struct {
	*cli.Env
	key, name string
	json      bool
	verbose   bool
	embedded  bool
	port      int
	ttl       time.Duration
	interval  *time.Duration

	portSet, ttlSet bool
	serving         serving.Flags
	health          cli.HealthFlags

	client string                                                                            // part of the name of the connection
	work   func(*election.Election, *slog.Logger) func(context.Context, election.Term) error // returns the work of the leader; nil if there is none
}

func registerCampaign(app *fisk.Application, env *cli.Env) {
	c := &campaignCommand{Env: env, client: "campaign"}
	cmd := app.Command("campaign", "Campaigns until interrupted").HelpLong(campaignHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("name", "Name of this candidate (default HOST-PID, or HOST in Kubernetes and for process 1)").PlaceHolder("NAME").StringVar(&c.name)
	cli.JSONVar(cmd, "Write events as JSON, one object on each line", &c.json)
	cmd.Flag("verbose", "Also log each campaign and each renewal").Short('v').UnNegatableBoolVar(&c.verbose)
	c.health.Register(cmd)
	c.serving.Register(cmd)
	cmd.Flag("embedded", "Start a JetStream server in this process and create the bucket, for experiments").UnNegatableBoolVar(&c.embedded)
	cli.IntVar(cmd.Flag("port", "Port of the embedded server on the loopback interface (default any free port)").PlaceHolder("PORT").IsSetByUser(&c.portSet), &c.port, defaultPort)
	cli.DurationVar(cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket on the embedded server (default %v)", campaignDefaultTTL)).IsSetByUser(&c.ttlSet), &c.ttl)
	cli.IntervalVar(cmd, intervalHelp, &c.interval)
	env.Connection.RegisterConnectTimeout(cmd)
}

// intervalHelp is the help of --interval for the commands that campaign.
const intervalHelp = "Time between renewals; a shorter interval survives longer outages of the server (default a quarter of the TTL)"

// run campaigns until ctx ends.
func (c *campaignCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	writer := &events.Writer{Style: terminal.StyleFor(c.Stdout), JSON: c.json, Common: events.Event{Election: c.key, Name: c.name}}
	return c.RunLasting(ctx, cli.LevelFor(c.verbose), writer.DroppedEvents, func(ctx context.Context, l cli.Lasting) error {
		writer.Out = l.Stdout
		return c.campaign(ctx, l.Fail, writer, slog.New(&events.Handler{Next: l.Log, Take: writer.Take}))
	})
}

// check validates the flags before the command connects.
func (c *campaignCommand) check() error {
	if c.name == "" {
		c.name, c.serving.Identity = cli.DefaultName(), cli.Host()
	}
	problems := cli.Problems{c.health.Check(), c.serving.Check(c.name, c.key)}
	problems.If(c.embedded && c.Connection.NamesServerByFlag(), "--embedded starts its own server: leave out --server and --context, or --embedded")
	problems.If(!c.embedded && (c.portSet || c.ttlSet), "--port and --ttl configure the embedded server: add --embedded, or leave them out; 'election-cli bucket add --ttl' sets the TTL of a new bucket")
	if c.embedded && !c.ttlSet {
		c.ttl = campaignDefaultTTL
	}
	if c.embedded {
		problems.Add(cli.CheckTTL(c.ttl))
	}
	return problems.Err()
}

// campaign connects, opens the bucket, and campaigns.
func (c *campaignCommand) campaign(ctx context.Context, fail context.CancelCauseFunc, writer *events.Writer, log *slog.Logger) error {
	w, err := c.hostWitness(log)
	if err != nil {
		return err
	}
	defer w.Close()
	served, err := c.serving.Serve(c.name, c.key, log)
	if err != nil {
		return err
	}
	defer served.Stop()
	if c.embedded {
		server, err := embedded.Start(embedded.Config{Port: c.port, Log: log})
		if err != nil {
			return err
		}
		defer server.Stop()
		c.Connection = cli.FlagsForServer(server.URL(), c.Connection.Timeout)
		log.Info("Embedded server started, other candidates can join it", "command", "election-cli campaign "+c.key+" -s "+server.URL()+" --bucket "+c.Bucket)
	}
	client, err := c.Connection.ConnectWithRetry("election-cli "+c.client+" "+c.name, fail, log)
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	bucket, err := c.openBucket(ctx, client, log)
	if err != nil {
		return cli.IgnoreIfDone(ctx, err)
	}
	opts := append([]election.Option{cli.IntervalOption(c.interval), election.WithLogger(log), w.Option()}, served.Options()...)
	opts = append(opts, c.health.Options(log, (*exec.Cmd).Run)...)
	if c.embedded {
		opts = append(opts, election.WithSplay(0)) // no other candidate competes yet
	}
	e, err := election.NewElection(c.name, c.key, bucket, opts...)
	if err == nil {
		err = cli.CheckInterval(ctx, c.interval, bucket)
	}
	if err != nil {
		return err
	}
	served.Follow(context.WithoutCancel(ctx), client, bucket, e)
	writer.SetBucket(ctx, client.ServerURL(), bucket, e.Term)
	if c.work != nil {
		return e.Run(ctx, c.work(e, log))
	}
	return e.Start(ctx)
}

// hostWitness returns the witness that the environment names; nil if it names none. The command file has none: a file that a killed process
// leaves behind stays fresh until its expiry, and only the lease keeps another host from writing one before.
func (c *campaignCommand) hostWitness(log *slog.Logger) (*witness.Witness, error) {
	if c.work != nil {
		return nil, nil
	}
	w, err := witness.OfHost(witness.WithLogger(log))
	return w, err
}

// openBucket opens the bucket. On an embedded server it creates the bucket.
func (c *campaignCommand) openBucket(ctx context.Context, client *cli.Client, log *slog.Logger) (*election.Bucket, error) {
	if c.embedded {
		return election.CreateBucket(ctx, client.JetStream, election.BucketConfig{Name: c.Bucket, TTL: c.ttl})
	}
	return client.WaitForBucket(ctx, c.Bucket, log)
}
