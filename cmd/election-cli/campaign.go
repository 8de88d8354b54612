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
	"github.com/natscampaign/election/internal/statuspage"
	"github.com/natscampaign/election/internal/terminal"
)

const campaignHelp = `When it is interrupted (INT or TERM) it stops leading, releases the key, and exits 0. It waits for a server that cannot be
reached.

Each event is a line on stdout, with --json one JSON object: "time" (RFC 3339), "event", "election" (the key), "name",
"state" (unknown, candidate, leader-elect, leader) and where they apply "term", "token" (the fencing token), "reason",
"leader", "led_s"; the first has "bucket", "ttl_s" and "server" as well. Events are:

    started    it campaigns from now on
    following  another candidate holds the key: "leader"
    elected    it won the key; leadership counts after the stand-down
    leading    it leads from now on
    lost       it no longer leads, or gave up before it led: "reason", "led_s"
    released   the key is free for others
    stopped    it left the election
    dropped    events are missing here, "dropped" in number, because nobody read them in time

With --metrics Prometheus can scrape the candidate's metrics; 'election-cli dashboard' and 'election-cli rules' print a
dashboard and alerts made of them. --metrics-namespace choria serves choria_election_campaigns, choria_election_leader and
choria_election_interval_seconds beside those, for dashboards that know no other names.

With --status a page shows the leader, the candidates and the events of the last hour, as they happen. The page changes
nothing, and needs no password: a port alone, as in :8222, is served on the loopback interface, and to other hosts only by an
ADDR that says so, such as 0.0.0.0:8222. Beside it /leader answers load balancers (200 while this candidate leads) and
/healthz answers probes (503 if it is stuck); see the library's Handler.

Reasons are vacant, released or reclaimed (elected), stood-down (leading), stopped, resigned, transferred, relinquished,
unhealthy, work-ended, overwritten, deleted, bucket-replaced, rewound, closed or deadline (lost).`

// campaignDefaultTTL is the TTL of a bucket on an embedded server: short enough to watch what happens.
const campaignDefaultTTL = 5 * time.Second

// campaignCommand is the command of that name.
type campaignCommand struct {
	*cli.Env
	key, name string
	json      bool
	verbose   bool
	metrics   string
	namespace string // that the metrics had before; empty unless namespaceSet
	status    string
	embedded  bool
	port      int
	ttl       time.Duration

	portSet, ttlSet, namespaceSet bool

	client string                                                                            // how the connection is called
	work   func(*election.Election, *slog.Logger) func(context.Context, election.Term) error // of the leader; nil if there is none
}

func registerCampaign(app *fisk.Application, t *cli.Env) {
	c := &campaignCommand{Env: t, client: "campaign"}
	cmd := app.Command("campaign", "Campaigns until interrupted").HelpLong(campaignHelp).Action(cli.Action(c.run))
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&c.key)
	cmd.Flag("name", "Name of this candidate (default HOST-PID-UNIQUE)").PlaceHolder("NAME").StringVar(&c.name)
	cmd.Flag("json", "Write events as JSON, one object on each line").UnNegatableBoolVar(&c.json)
	cmd.Flag("verbose", "Log each campaign and renewal as well").Short('v').UnNegatableBoolVar(&c.verbose)
	cmd.Flag("metrics", "Serve Prometheus metrics on http://ADDR/metrics").PlaceHolder("ADDR").StringVar(&c.metrics)
	cmd.Flag("metrics-namespace", "Serve three of the metrics by names such as NS_election_leader as well, for dashboards made for Choria (choria)").PlaceHolder("NS").IsSetByUser(&c.namespaceSet).StringVar(&c.namespace)
	cmd.Flag("status", "Serve a page about the election on http://ADDR/, with /leader and /healthz for load balancers and probes; on the loopback interface unless ADDR names another").PlaceHolder("ADDR").StringVar(&c.status)
	cmd.Flag("embedded", "Bring up a JetStream server in this process, and the bucket, to try things out").UnNegatableBoolVar(&c.embedded)
	cmd.Flag("port", "Port of the embedded server, on the loopback interface (default any that is free)").PlaceHolder("PORT").IsSetByUser(&c.portSet).IntVar(&c.port)
	cmd.Flag("ttl", fmt.Sprintf("TTL of the bucket on the embedded server (default %v)", campaignDefaultTTL)).PlaceHolder("DURATION").IsSetByUser(&c.ttlSet).DurationVar(&c.ttl)
}

// run campaigns until ctx ends.
func (c *campaignCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	story := &events.Story{Style: terminal.StyleFor(c.Stdout), JSON: c.json, About: events.Event{Election: c.key, Name: c.name}}
	stdout, stderr := terminal.NewQueue(c.Stdout, story.Gap, fail), terminal.NewQueue(c.Stderr, terminal.Dropped, fail)
	defer stderr.Close()
	defer stdout.Close()
	story.Out = stdout
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	handler := terminal.NewLogHandler(stderr, terminal.StyleFor(c.Stderr), level)
	err := c.campaign(ctx, fail, &events.Narrator{Next: handler, Story: story})
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // what ended the campaign was not the user
	}
	return err
}

// check finds what is wrong with the flags before anything is begun.
func (c *campaignCommand) check() error {
	if c.name == "" {
		c.name = cli.DefaultName()
	}
	switch {
	case c.embedded && c.Connection.NamedByFlag():
		return errors.New("--embedded brings up a server of its own: leave out --server and --context, or --embedded")
	case !c.embedded && (c.portSet || c.ttlSet):
		return errors.New("--port and --ttl are the embedded server's: give --embedded too, or leave them out; a bucket's TTL is set where it is made")
	case c.namespaceSet && c.metrics == "":
		return errors.New("--metrics-namespace names what --metrics serves: give --metrics too, or leave it out")
	}
	if c.embedded && !c.ttlSet {
		c.ttl = campaignDefaultTTL
	}
	if err := cli.CheckTTL(c.ttl); c.embedded && err != nil {
		return err
	}
	_, err := election.NewElection(c.name, c.key, cli.Unbound{}, c.registerer(nil))
	if err = cli.InFlags(err); err != nil {
		return errors.New(strings.Replace(err.Error(), "WithRegisterer: the namespace", "--metrics-namespace", 1))
	}
	return nil
}

// registerer returns the option that registers the metrics with r, also under the names of --metrics-namespace if that is given.
func (c *campaignCommand) registerer(r prometheus.Registerer) election.Option {
	if c.namespaceSet {
		return election.WithRegisterer(r, c.namespace)
	}
	return election.WithRegisterer(r)
}

// campaignCommand connects, finds the bucket, and takes part in the election.
func (c *campaignCommand) campaign(ctx context.Context, fail context.CancelCauseFunc, n *events.Narrator) error {
	log := slog.New(n)
	metrics, err := c.serveMetrics(log)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer metrics.stop()
	}
	page, err := c.serveStatus(log)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Stop()
	}
	if c.embedded {
		server, err := embedded.Start(embedded.Config{Port: c.port})
		if err != nil {
			return err
		}
		defer server.Stop()
		c.Connection = cli.FlagsTo(server.URL(), c.Connection.Timeout)
		log.Info("Embedded server listens, others join with: election-cli campaign " + c.key + " -s " + server.URL() + " --bucket " + c.Bucket)
	}
	s, err := c.Connection.Join("election-cli "+c.client+" "+c.name, fail, log)
	if err != nil {
		return err
	}
	defer s.Conn.Close()
	bucket, err := c.findBucket(ctx, s, log)
	if err != nil {
		return cli.UnlessOver(ctx, err)
	}
	opts := []election.Option{election.WithLogger(log)}
	if metrics != nil {
		opts = append(opts, c.registerer(metrics.registry))
	}
	if c.embedded {
		opts = append(opts, election.WithSplay(0)) // there is nobody yet to keep apart from
	}
	e, err := election.NewElection(c.name, c.key, bucket, opts...)
	if err != nil {
		return cli.InFlags(err)
	}
	if page != nil {
		page.Follow(s, bucket, e)
	}
	n.Story.Introduce(ctx, s.ServerURL(), bucket, e.Term)
	if c.work != nil {
		return cli.InFlags(e.Run(ctx, c.work(e, log)))
	}
	return cli.InFlags(e.Start(ctx))
}

func (c *campaignCommand) serveMetrics(log *slog.Logger) (*metricsServer, error) {
	if c.metrics == "" {
		return nil, nil
	}
	return serveMetrics(c.metrics, log)
}

func (c *campaignCommand) serveStatus(log *slog.Logger) (*statuspage.Page, error) {
	if c.status == "" {
		return nil, nil
	}
	return statuspage.Serve(c.status, c.name, c.key, log)
}

// findBucket returns the bucket, which on an embedded server is made first.
func (c *campaignCommand) findBucket(ctx context.Context, s *cli.Session, log *slog.Logger) (*election.Bucket, error) {
	if c.embedded {
		return election.CreateBucket(ctx, s.JetStream, election.BucketConfig{Name: c.Bucket, TTL: c.ttl})
	}
	return s.AwaitBucket(ctx, c.Bucket, log)
}
