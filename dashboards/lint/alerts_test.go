package lint

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natscampaign/election/internal/drill/alerts"
)

// unprovoked lists the alerts for which a drill does nothing: the first fires when the drill ends.
var unprovoked = []string{"ElectionScrapeMissing"}

func TestTheDrillOfAlertsKnowsEachAlert(t *testing.T) {
	g := NewWithT(t)
	var listed, provoked []string
	for _, r := range rulesOf(g) {
		if r.Alert != "" {
			listed = append(listed, r.Alert)
		}
	}
	for _, p := range alerts.Provocations {
		provoked = append(provoked, p.Alert)
	}
	g.Expect(append(provoked, unprovoked...)).To(ConsistOf(listed))
}

func TestTheDrillOfAlertsHasEachAlertFire(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(metrics.Close)
	s := startPrometheus(t, []*host{{metrics: metrics, registry: registry}})
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- alerts.Drill{Metrics: registry, Pace: 4 * time.Second, Progress: func(text string) { t.Log(text) }}.Run(ctx)
	}()
	t.Cleanup(func() { end(); s.Expect(<-ended).To(Succeed()) })
	for _, p := range alerts.Provocations {
		s.Eventually(func() []series {
			return s.query(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing", election=%[1]q, job="hosts"}`, p.Alert))
		}).WithTimeout(3*patience).WithPolling(scrape).ShouldNot(BeEmpty(), p.Alert)
		t.Logf("%s fires", p.Alert)
	}
	metrics.CloseClientConnections()
	metrics.Close()
	s.Eventually(s.firing("ElectionScrapeMissing")).WithTimeout(patience).WithPolling(scrape).Should(BeTrue())
}
