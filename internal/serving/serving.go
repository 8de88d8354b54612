// Package serving is what the commands that campaign serve over HTTP: the metrics of their candidate, and the status page. It also serves
// both about the elections of a bucket, without a candidate.
package serving

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/choria-io/fisk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/statuspage"
)

// Flags are the flags by which a candidate serves its metrics and the status page.
type Flags struct {
	metrics, status string
	namespace       string // additional prefix of three metrics; only if namespaceSet
	namespaceSet    bool
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *fisk.CmdClause) {
	cmd.Flag("metrics", "Serve Prometheus metrics on http://ADDR/metrics").PlaceHolder("ADDR").StringVar(&f.metrics)
	cmd.Flag("metrics-namespace", "Also serve three metrics with names such as NS_election_leader, for dashboards made for Choria (choria)").PlaceHolder("NS").IsSetByUser(&f.namespaceSet).StringVar(&f.namespace)
	cmd.Flag("status", "Serve a page about the election on http://ADDR/, with /leader and /healthz for load balancers and probes; without a host in ADDR, on the loopback interface only").PlaceHolder("ADDR").StringVar(&f.status)
}

// Check validates the flags for a candidate before it connects.
func (f *Flags) Check(name, key string) error {
	if f.namespaceSet && f.metrics == "" {
		return errors.New("--metrics-namespace applies to --metrics only: add --metrics, or leave it out")
	}
	_, err := election.NewElection(name, key, cli.PlaceholderBucket{}, f.registerer(nil))
	if err = cli.AsFlagError(err); err != nil {
		return errors.New(strings.Replace(err.Error(), "WithRegisterer: the namespace", "--metrics-namespace", 1))
	}
	return nil
}

// registerer returns the option that registers the metrics with r, and some of them again with the prefix of --metrics-namespace.
func (f *Flags) registerer(r prometheus.Registerer) election.Option {
	if f.namespaceSet {
		return election.WithRegisterer(r, f.namespace)
	}
	return election.WithRegisterer(r)
}

// Server serves the metrics and the page of a candidate, as far as flags ask for them.
type Server struct {
	flags   *Flags
	metrics *metricsServer
	page    *statuspage.Page
}

// Serve begins to serve what the flags ask for. The caller must call Stop unless there is an error.
func (f *Flags) Serve(name, key string, log *slog.Logger) (s *Server, err error) {
	s = &Server{flags: f}
	if f.metrics != "" {
		if s.metrics, err = serveMetrics(f.metrics, log); err != nil {
			return nil, err
		}
	}
	if f.status != "" {
		if s.page, err = statuspage.Serve(f.status, name, key, log); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

// Options returns the options of the candidate.
func (s *Server) Options() []election.Option {
	if s.metrics == nil {
		return nil
	}
	return []election.Option{s.flags.registerer(s.metrics.registry)}
}

// Follow shows the candidate on the page from now on, until ctx ends.
func (s *Server) Follow(ctx context.Context, client *cli.Client, bucket *election.Bucket, e *election.Election) {
	if s.page != nil {
		s.page.Follow(ctx, client, bucket, e)
	}
}

// Stop ends what is served.
func (s *Server) Stop() {
	if s.page != nil {
		s.page.Stop()
	}
	if s.metrics != nil {
		s.metrics.stop()
	}
}
