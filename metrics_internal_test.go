package election

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natscampaign/election/internal/core"
)

// unopened is a bucket that knows nothing but its name.
type unopened struct{ jetstream.KeyValue }

func (unopened) Bucket() string { return "ELECTIONS" }

// BenchmarkScrapeOf2000Elections measures the scrape that docs/REFERENCE.md states, of candidates that have renewed and lost.
func BenchmarkScrapeOf2000Elections(b *testing.B) {
	registry := prometheus.NewRegistry()
	for i := range 2000 {
		e, err := NewElection("web-1", "tenant-"+strconv.Itoa(i), unopened{}, WithRegisterer(registry))
		if err != nil {
			b.Fatal(err)
		}
		if err := e.metrics.register(); err != nil {
			b.Fatal(err)
		}
		e.running = true
		e.candidate.Notice(time.Now(), core.Joined{Source: core.NoSource})
		e.metrics.stateChanged(CandidateState, ReasonStarted)
		e.metrics.stateChanged(LeaderElectState, ReasonVacant)
		for n := range 1000 {
			e.metrics.campaigned(LeaderState)
			e.metrics.renewed(time.Duration(n) * 7 * time.Microsecond)
		}
	}
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	var text []byte
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		text = w.Body.Bytes()
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := io.Copy(z, bytes.NewReader(text)); err != nil || z.Close() != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(bytes.Count(text, []byte{'\n'})), "lines")
	b.ReportMetric(float64(len(text)), "bytes/scrape")
	b.ReportMetric(float64(compressed.Len()), "gzip-bytes/scrape")
}
