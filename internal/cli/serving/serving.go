// Package serving is what commands serve over HTTP: the metrics of a candidate, and a status page about one election, or about all elections
// of a bucket.
//
// The status page shows the leaders, whether elections are paused, and for each election its candidates and the events of the last hour.
// Server-sent events update the page at each change: a reader receives the sections and the rows that differ from those that it has. What the
// page knows has one owner, type elections.
//
// The page is read-only, and has no password of its own. It shows all text from other candidates escaped and printable. It queries the
// candidates and the bucket only while a reader requests the page or follows the events, and limits the number of readers that follow the
// events at once, the number of elections, and the history of each. The page of a candidate also serves its handler at /leader and /healthz,
// for load balancers and probes. The page of a bucket has metrics about the elections that it observes.
package serving

import (
	"context"
	"log/slog"

	"github.com/choria-io/fisk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

// Help is the part about these flags of the help of a command that campaigns.
const Help = `With --metrics the command serves the metrics of the candidate for Prometheus. 'election-cli dashboard' and 'election-cli rules'
print a dashboard and alerts for these metrics. The label "identity" is the name that --name gives, else the host. --metrics-choria
adds choria_election_campaigns, choria_election_leader and choria_election_interval_seconds, for dashboards made for Choria.

With --status the command serves a page that shows the leader, the candidates and the events of the last hour, live. The page
changes nothing. Beside the page, /leader answers load balancers (200 while this candidate leads), and /healthz answers probes (503 if
the candidate is stuck); see Handler in the Go package. GET / by a program that accepts no HTML gets {"name":"LEADER"}, as from the
sidecar leader-elector of Kubernetes; the name is empty while nobody leads.

--metrics and --status take an address. A port alone, such as :9222, is served on the loopback interface only; give 0.0.0.0:9222 for
all interfaces. Both may have the same address. There is no TLS and no password, unless --web-config names a file in the format
of the exporters of Prometheus, which is read again for each connection. TLS and passwords then apply to all paths, /leader and
/healthz among them. For example:

    tls_server_config: {cert_file: web.crt, key_file: web.key}
    basic_auth_users: {prometheus: "HASH"}   # of the password, as 'htpasswd -nB prometheus' prints it`

// Flags are the flags by which a candidate serves its metrics and the status page.
type Flags struct {
	Identity string // what metrics call the candidate; the same after each start; empty for its name

	metrics, status string
	namespace       string // prefix of all metrics
	choria          bool   // three metrics have Choria's names too
	webConfig       string
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *fisk.CmdClause) {
	cmd.Flag("metrics", "Serve Prometheus metrics on http://ADDR/metrics").PlaceHolder("ADDR").StringVar(&f.metrics)
	cmd.Flag("metrics-namespace", "Prefix of the names of all metrics, as in NS_election_leader").PlaceHolder("NS").StringVar(&f.namespace)
	cmd.Flag("metrics-choria", "Also serve three metrics by the names of Choria, such as choria_election_leader").UnNegatableBoolVar(&f.choria)
	cmd.Flag("status", "Serve a page about the election on http://ADDR/, with /leader and /healthz for load balancers and probes").PlaceHolder("ADDR").StringVar(&f.status)
	RegisterWebConfig(cmd, "with TLS and passwords for --metrics and --status", &f.webConfig)
}

// RegisterWebConfig adds the flag --web-config to a command.
func RegisterWebConfig(cmd *fisk.CmdClause, purpose string, file *string) {
	cmd.Flag("web-config", "Web configuration file of Prometheus exporters, "+purpose).PlaceHolder("FILE").StringVar(file)
}

// Check validates the flags for a candidate before it connects.
func (f *Flags) Check(name, key string) error {
	_, err := election.NewElection(name, key, cli.PlaceholderBucket{}, f.options(nil)...)
	problems := cli.Problems{err}
	problems.If(f.metrics == "" && (f.namespace != "" || f.choria), "--metrics-namespace and --metrics-choria apply to --metrics only: add --metrics, or leave them out")
	problems.If(f.webConfig != "" && f.metrics == "" && f.status == "", "--web-config applies to --metrics and --status only: add one of them, or leave it out")
	return problems.Err()
}

// options returns the options that register the metrics with r.
func (f *Flags) options(r prometheus.Registerer) []election.Option {
	opts := []election.Option{election.WithRegisterer(r), election.WithMetricsNamespace(f.namespace)}
	if f.Identity != "" {
		opts = append(opts, election.WithMetricsIdentity(f.Identity))
	}
	if f.choria {
		opts = append(opts, election.WithChoriaMetrics("choria"))
	}
	return opts
}

// Server serves the metrics and the page of a candidate, as far as flags ask for them.
type Server struct {
	flags    *Flags
	registry *prometheus.Registry // nil without --metrics
	page     *statusPage          // nil without --status
	servers  *webServers
}

// Serve begins to serve what the flags ask for. It listens before the command connects, so that a wrong address is an error at once. The
// caller must call Stop unless there is an error.
func (f *Flags) Serve(name, key string, log *slog.Logger) (s *Server, err error) {
	s = &Server{flags: f}
	var endpoints []endpoint
	if f.metrics != "" {
		s.registry = newRegistry()
		endpoints = append(endpoints, metricsEndpoint("--metrics", f.metrics, s.registry))
	}
	if f.status != "" {
		if s.page, err = newStatusPage(name, key, log); err != nil {
			return nil, err
		}
		endpoints = append(endpoints, statusEndpoint("--status", f.status, s.page))
	}
	if s.servers, err = serve(endpoints, f.webConfig, log); err != nil {
		return nil, err
	}
	return s, nil
}

// statusEndpoint returns what serves a status page on the address of a flag.
func statusEndpoint(flag, address string, p *statusPage) endpoint {
	return endpoint{Flag: flag, Address: address, Pattern: "/", Path: "/", Handler: p.Handler(), Started: "Serving the status page"}
}

// Options returns the options of the candidate.
func (s *Server) Options() []election.Option {
	if s.registry == nil {
		return nil
	}
	return s.flags.options(s.registry)
}

// Follow shows the candidate on the page from now on, until ctx ends.
func (s *Server) Follow(ctx context.Context, client *cli.Client, bucket *election.Bucket, e *election.Election) {
	if s.page != nil {
		s.page.Follow(ctx, client, bucket, e)
	}
}

// Stop ends what is served.
func (s *Server) Stop() {
	s.servers.Stop()
	if s.page != nil {
		s.page.Stop()
	}
}
