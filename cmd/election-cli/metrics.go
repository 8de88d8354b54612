package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natscampaign/election/internal/statuspage"
	"github.com/natscampaign/election/internal/webserver"
)

// campaignPages are the metrics and the status page of a candidate, as far as the flags ask for them.
type campaignPages struct {
	registry *prometheus.Registry // nil without --metrics
	status   *statuspage.Page     // nil without --status
	servers  *webserver.Servers
}

// servePages serves the metrics and the status page. It listens before the command connects, so that a wrong address is an error at once.
func (c *campaignCommand) servePages(log *slog.Logger) (p *campaignPages, err error) {
	p = &campaignPages{}
	var pages []webserver.Page
	if c.metrics != "" {
		p.registry = newRegistry()
		handler := promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry})
		pages = append(pages, webserver.Page{Flag: "--metrics", Address: c.metrics, Pattern: "GET /metrics", Path: "/metrics", Handler: handler, Started: "Metrics are served"})
	}
	if c.status != "" {
		if p.status, err = statuspage.New(c.name, c.key, log); err != nil {
			return nil, err
		}
		pages = append(pages, webserver.Page{Flag: "--status", Address: c.status, Pattern: "/", Path: "/", Handler: p.status.Handler(), Started: "Serving the status page"})
	}
	p.servers, err = webserver.Serve(pages, c.webConfig, log)
	return p, err
}

// stop stops the servers and the status page.
func (p *campaignPages) stop() {
	p.servers.Stop()
	if p.status != nil {
		p.status.Stop()
	}
}

// newRegistry returns a registry with the metrics of the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return r
}
