package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/choria-io/fisk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/events"
	"github.com/natscampaign/election/internal/terminal"
)

const campaignHelp = `The command is a candidate in the election KEY until INT or TERM interrupts it. Then it stops leading, releases the key, and
exits with 0. It waits for an unreachable server.

Example: election-cli campaign scheduler --name web-1 --status :8222

Each event is a line on stdout. With --json each event is one JSON object with "time" (RFC 3339), "event", "election" (the key),
"name" and "state" (unknown, candidate, leader-elect, leader), and with "term", "token" (the fencing token), "reason", "leader" and
"led_s" where they apply. The first event also has "bucket", "ttl_s" and "server". The events are:

    started    the candidate campaigns from now on
    following  another candidate holds the key: "leader"
    elected    the candidate won the key; its leadership counts after the stand-down, if there is one
    leading    the candidate leads from now on
    lost       the candidate no longer leads, or gave up the key before it led: "reason", "led_s"
    released   the candidate released the key
    stopped    the candidate left the election
    dropped    the output was not read in time, and "dropped" events are missing here

Reasons are vacant, released or reclaimed (elected), stood-down (leading), stopped, resigned, transferred, relinquished,
unhealthy, work-ended, overwritten, deleted, bucket-replaced, rewound, closed or deadline (lost).

With --metrics the command serves the metrics of the candidate for Prometheus. 'election-cli dashboard' and 'election-cli rules'
print a dashboard and alerts for these metrics. The label "identity" is the name that --name gives, else the host. --metrics-choria
adds choria_election_campaigns, choria_election_leader and choria_election_interval_seconds, for dashboards made for Choria.

With --status the command serves a page that shows the leader, the candidates and the events of the last hour, live. The page
changes nothing. Beside the page, /leader answers load balancers (200 while this candidate leads), and /healthz answers probes (503 if
the candidate is stuck); see Handler in the Go package.

--metrics and --status take an address. A port alone, such as :9222, is served on the loopback interface only; give 0.0.0.0:9222 for
all interfaces. Both may have the same address. There is no TLS and no password, unless --web-config names a file in the format
of the exporters of Prometheus. TLS and passwords then apply to all paths, /leader and /healthz among them. For example:

    tls_server_config: {cert_file: web.crt, key_file: web.key}
    basic_auth_users: {prometheus: "HASH"}   # of the password, as 'htpasswd -nB prometheus' prints it`

// campaignDefaultTTL is the TTL of the bucket on an embedded server. It is short, so that a user can watch a failover.
const campaignDefaultTTL = 5 * time.Second

// campaignCommand implements campaign. The command file adds work for the leader.
type campaignCommand struct {
	*cli.Env
	key, name string
	json      bool
	verbose   bool
	metrics   string
	namespace string // prefix of all metrics
	choria    bool   // three metrics have Choria's names too
	identity  string // what metrics call this candidate; the same after each start
	status    string
	webConfig string
	embedded  bool
	port      int
	ttl       time.Duration
	interval  *time.Duration

	portSet, ttlSet bool

	client string                                                                            // part of the name of the connection
	work   func(*election.Election, *slog.Logger) func(context.Context, election.Term) error // returns the work of the leader; nil if there is none
}

func registerCampaign(app *fisk.Application, env *cli.Env) {
	c := &campaignCommand{Env: env, client: "campaign"}
	cmd := app.Command("campaign", "Campaigns until interrupted").HelpLong(campaignHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("name", "Name of this candidate (default HOST-PID-UNIQUE)").PlaceHolder("NAME").StringVar(&c.name)
	cli.JSONVar(cmd, "Write events as JSON, one object on each line", &c.json)
	cmd.Flag("verbose", "Also log each campaign and each renewal").Short('v').UnNegatableBoolVar(&c.verbose)
	cmd.Flag("metrics", "Serve Prometheus metrics on http://ADDR/metrics").PlaceHolder("ADDR").StringVar(&c.metrics)
	cmd.Flag("metrics-namespace", "Prefix of the names of all metrics, as in NS_election_leader").PlaceHolder("NS").StringVar(&c.namespace)
	cmd.Flag("metrics-choria", "Also serve three metrics by the names of Choria, such as choria_election_leader").UnNegatableBoolVar(&c.choria)
	cmd.Flag("status", "Serve a page about the election on http://ADDR/, with /leader and /healthz for load balancers and probes").PlaceHolder("ADDR").StringVar(&c.status)
	cmd.Flag("web-config", "Web configuration file of Prometheus exporters, with TLS and passwords for --metrics and --status").PlaceHolder("FILE").StringVar(&c.webConfig)
	cmd.Flag("embedded", "Start a JetStream server in this process and create the bucket, for experiments").UnNegatableBoolVar(&c.embedded)
	cli.IntVar(cmd.Flag("port", "Port of the embedded server on the loopback interface (default any free port)").PlaceHolder("PORT").IsSetByUser(&c.portSet), &c.port)
	cli.DurationVar(cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket on the embedded server (default %v)", campaignDefaultTTL)).IsSetByUser(&c.ttlSet), &c.ttl)
	cli.IntervalVar(cmd, intervalHelp, &c.interval)
	env.Connection.RegisterConnectTimeout(cmd)
}

// intervalHelp is the help of --interval for the commands that campaign.
const intervalHelp = "Time between renewals; a shorter interval survives longer outages of the server (default 0.75 of the TTL)"

// run campaigns until ctx ends.
func (c *campaignCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	writer := &events.Writer{Style: terminal.StyleFor(c.Stdout), JSON: c.json, Common: events.Event{Election: c.key, Name: c.name}}
	stdout, stderr := terminal.NewQueue(c.Stdout, writer.DroppedEvents, fail), terminal.NewQueue(c.Stderr, terminal.DroppedLines, fail)
	defer stderr.Close()
	defer stdout.Close()
	writer.Out = stdout
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	log := terminal.NewLogHandler(stderr, terminal.StyleFor(c.Stderr), level)
	err := c.campaign(ctx, fail, &events.Handler{Next: log, Events: writer})
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // fail ended the campaign, not the user
	}
	return err
}

// check validates the flags before the command connects.
func (c *campaignCommand) check() error {
	if c.identity = c.name; c.name == "" {
		c.name, c.identity = cli.DefaultName(), cli.Host()
	}
	switch {
	case c.embedded && c.Connection.NamesServerByFlag():
		return errors.New("--embedded starts its own server: leave out --server and --context, or --embedded")
	case !c.embedded && (c.portSet || c.ttlSet):
		return errors.New("--port and --ttl configure the embedded server: add --embedded, or leave them out; 'election-cli bucket add --ttl' sets the TTL of a new bucket")
	case c.metrics == "" && (c.namespace != "" || c.choria):
		return errors.New("--metrics-namespace and --metrics-choria apply to --metrics only: add --metrics, or leave them out")
	case c.webConfig != "" && c.metrics == "" && c.status == "":
		return errors.New("--web-config applies to --metrics and --status only: add one of them, or leave it out")
	}
	if c.embedded && !c.ttlSet {
		c.ttl = campaignDefaultTTL
	}
	if err := cli.CheckTTL(c.ttl); c.embedded && err != nil {
		return err
	}
	_, err := election.NewElection(c.name, c.key, cli.PlaceholderBucket{}, c.metricsOptions(nil)...)
	if err = cli.AsFlagError(err); err != nil {
		return errors.New(strings.Replace(err.Error(), "WithRegisterer: the namespace", "--metrics-namespace", 1))
	}
	return nil
}

// metricsOptions returns the options that register the metrics with r.
func (c *campaignCommand) metricsOptions(r prometheus.Registerer) []election.Option {
	opts := []election.Option{election.WithRegisterer(r, c.namespace), election.WithMetricsIdentity(c.identity)}
	if c.choria {
		opts = append(opts, election.WithChoriaMetrics())
	}
	return opts
}

// campaign connects, opens the bucket, and campaigns.
func (c *campaignCommand) campaign(ctx context.Context, fail context.CancelCauseFunc, handler *events.Handler) error {
	log := slog.New(handler)
	pages, err := c.servePages(log)
	if err != nil {
		return err
	}
	defer pages.stop()
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
	opts := append(cli.IntervalOption(c.interval), election.WithLogger(log))
	if pages.registry != nil {
		opts = append(opts, c.metricsOptions(pages.registry)...)
	}
	if c.embedded {
		opts = append(opts, election.WithSplay(0)) // no other candidate competes yet
	}
	e, err := election.NewElection(c.name, c.key, bucket, opts...)
	if err != nil {
		return cli.AsFlagError(err)
	}
	if pages.status != nil {
		pages.status.Follow(client, bucket, e)
	}
	handler.Events.SetBucket(ctx, client.ServerURL(), bucket, e.Term)
	if c.work != nil {
		return cli.AsFlagError(e.Run(ctx, c.work(e, log)))
	}
	return cli.AsFlagError(e.Start(ctx))
}

// openBucket opens the bucket. On an embedded server it creates the bucket.
func (c *campaignCommand) openBucket(ctx context.Context, client *cli.Client, log *slog.Logger) (*election.Bucket, error) {
	if c.embedded {
		return election.CreateBucket(ctx, client.JetStream, election.BucketConfig{Name: c.Bucket, TTL: c.ttl})
	}
	return client.WaitForBucket(ctx, c.Bucket, log)
}
