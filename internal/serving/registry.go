package serving

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsEndpoint returns what serves the metrics of a registry on the address of a flag.
func metricsEndpoint(flag, address string, r *prometheus.Registry) endpoint {
	return endpoint{
		Flag: flag, Address: address, Pattern: "GET /metrics", Path: "/metrics", Started: "Metrics are served",
		Handler: promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r}),
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
