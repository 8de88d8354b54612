package serving

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsServer serves the metrics of one registry over HTTP.
type metricsServer struct {
	registry *prometheus.Registry
	server   *http.Server
}

// serveMetrics listens on address, so that a wrong address is an error before the command connects.
func serveMetrics(address string, log *slog.Logger) (*metricsServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics %s: %w; give an address such as 127.0.0.1:9222 or :9222", address, err)
	}
	registry := newRegistry()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	m := &metricsServer{
		registry: registry,
		server:   &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
	}
	go func() {
		if err := m.server.Serve(l); err != http.ErrServerClosed {
			log.Error("Metrics are no longer served", "error", err)
		}
	}()
	log.Info("Metrics are served", "url", "http://"+l.Addr().String()+"/metrics")
	return m, nil
}

// newRegistry returns a registry with the metrics of this process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return registry
}

// stop stops the server. Active requests have one second to end.
func (m *metricsServer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.server.Shutdown(ctx) != nil {
		_ = m.server.Close()
	}
}
