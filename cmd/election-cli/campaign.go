package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/choria-io/fisk"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
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

// campaign is the command of that name.
type campaign struct {
	*tool
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

func registerCampaign(app *fisk.Application, t *tool) {
	c := &campaign{tool: t, client: "campaign"}
	cmd := app.Command("campaign", "Campaigns until interrupted").HelpLong(campaignHelp).Action(action(c.run))
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
func (c *campaign) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	user := ctx
	ctx, fail := context.WithCancelCause(user)
	defer fail(nil)
	story := &story{style: styleFor(c.stdout), json: c.json, about: event{Election: c.key, Name: c.name}}
	stdout, stderr := newQueue(c.stdout, story.gap, fail), newQueue(c.stderr, gapInText, fail)
	defer stderr.Close()
	defer stdout.Close()
	story.out = stdout
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	handler := newLogHandler(stderr, styleFor(c.stderr), level)
	err := c.campaign(ctx, fail, &narrator{next: handler, story: story})
	if err == nil && user.Err() == nil {
		err = context.Cause(ctx) // what ended the campaign was not the user
	}
	return err
}

// check finds what is wrong with the flags before anything is begun.
func (c *campaign) check() error {
	if c.name == "" {
		c.name = defaultName()
	}
	switch {
	case c.embedded && c.conn.givenByFlag():
		return errors.New("--embedded brings up a server of its own: leave out --server and --context, or --embedded")
	case !c.embedded && (c.portSet || c.ttlSet):
		return errors.New("--port and --ttl are the embedded server's: give --embedded too, or leave them out; a bucket's TTL is set where it is made")
	case c.namespaceSet && c.metrics == "":
		return errors.New("--metrics-namespace names what --metrics serves: give --metrics too, or leave it out")
	}
	if c.embedded && !c.ttlSet {
		c.ttl = campaignDefaultTTL
	}
	if err := checkTTL(c.ttl); c.embedded && err != nil {
		return err
	}
	_, err := election.NewElection(c.name, c.key, unbound{}, c.registerer(nil))
	if err = tidy(err); err != nil {
		return errors.New(strings.Replace(err.Error(), "WithRegisterer: the namespace", "--metrics-namespace", 1))
	}
	return nil
}

// registerer returns the option that registers the metrics with r, also under the names of --metrics-namespace if that is given.
func (c *campaign) registerer(r prometheus.Registerer) election.Option {
	if c.namespaceSet {
		return election.WithRegisterer(r, c.namespace)
	}
	return election.WithRegisterer(r)
}

// campaign connects, finds the bucket, and takes part in the election.
func (c *campaign) campaign(ctx context.Context, fail context.CancelCauseFunc, n *narrator) error {
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
		defer page.stop()
	}
	if c.embedded {
		server, err := startEmbedded(embeddedConfig{port: c.port})
		if err != nil {
			return err
		}
		defer server.stop()
		c.conn = server.flags(c.conn.timeout)
		log.Info("Embedded server listens, others join with: election-cli campaign " + c.key + " -s " + server.url() + " --bucket " + c.bucket)
	}
	s, err := c.conn.join("election-cli "+c.client+" "+c.name, fail, log)
	if err != nil {
		return err
	}
	defer s.nc.Close()
	bucket, err := c.findBucket(ctx, s, log)
	if err != nil {
		return interrupted(ctx, err)
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
		return tidy(err)
	}
	if page != nil {
		page.follow(s, bucket, e)
	}
	n.story.introduce(ctx, s, bucket, e.Term)
	if c.work != nil {
		return tidy(e.Run(ctx, c.work(e, log)))
	}
	return tidy(e.Start(ctx))
}

func (c *campaign) serveMetrics(log *slog.Logger) (*metricsServer, error) {
	if c.metrics == "" {
		return nil, nil
	}
	return serveMetrics(c.metrics, log)
}

func (c *campaign) serveStatus(log *slog.Logger) (*statusPage, error) {
	if c.status == "" {
		return nil, nil
	}
	return serveStatus(c.status, c.name, c.key, log)
}

// findBucket returns the bucket, which on an embedded server is made first.
func (c *campaign) findBucket(ctx context.Context, s *session, log *slog.Logger) (*election.Bucket, error) {
	if c.embedded {
		return election.CreateBucket(ctx, s.js, election.BucketConfig{Name: c.bucket, TTL: c.ttl})
	}
	return s.awaitBucket(ctx, c.bucket, log)
}

// introduce adds the bucket and the server to the story's first event.
func (s *story) introduce(ctx context.Context, conn *session, bucket *election.Bucket, term func() (election.Term, bool)) {
	s.about.Bucket, s.about.Server = bucket.Bucket(), conn.server()
	if status, err := bucket.Status(ctx); err == nil {
		s.about.TTLS = status.TTL().Seconds()
	}
	s.token = term
}

// interrupted returns no error if ctx ended: whoever ended it knows why.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// tidy returns err in words for the command line, where there are flags and no options.
func tidy(err error) error {
	if err == nil || !errors.Is(err, election.ErrInvalidOption) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), election.ErrInvalidOption.Error()+": ", ""))
}

// defaultName returns a name that says which process of which host it is, and that no other process has.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	unique := nuid.Next()
	return fmt.Sprintf("%.200s-%d-%s", host, os.Getpid(), unique[len(unique)-6:])
}

// unbound stands in for a bucket while there is no connection, so that name and key can be judged at once.
type unbound struct{ jetstream.KeyValue }

// Bucket returns no name.
func (unbound) Bucket() string { return "" }

// checkTTL refuses TTLs that elections cannot have.
func checkTTL(ttl time.Duration) error {
	switch {
	case ttl < time.Second:
		return fmt.Errorf("--ttl %v is too short: servers expire keys up to 350ms late, so give at least 1s, better 2s", ttl)
	case ttl > time.Hour:
		return fmt.Errorf("--ttl %v is too long: nobody would lead for that time after a crash, so give at most 1h", ttl)
	}
	return nil
}
