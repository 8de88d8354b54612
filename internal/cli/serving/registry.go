package serving

import (
	"context"
	"log/slog"

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

// Metrics serves the metrics of a registry on the address of a flag while work runs. It listens before it calls work.
func Metrics(ctx context.Context, flag, address string, r *prometheus.Registry, log *slog.Logger, work func(context.Context) error) error {
	servers, err := serve([]endpoint{metricsEndpoint(flag, address, r)}, "", log)
	if err != nil {
		return err
	}
	defer servers.Stop()
	return work(ctx)
}
