package alerts

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) } // a drill leaves no goroutine behind

func TestADrillEndsWithItsContextAndLeavesNoSeries(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewRegistry()
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Drill{Metrics: registry, Pace: time.Second}.Run(ctx) }()
	series := func() (names []string) {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			names = append(names, f.GetName())
		}
		return names
	}
	g.Eventually(series).WithTimeout(30 * time.Second).Should(ContainElement("election_fence_writes_total"))
	end()
	g.Eventually(ended).WithTimeout(30 * time.Second).Should(Receive(BeNil()))
	g.Expect(series()).To(HaveExactElements("election_fence_writes_total"), "which its owner unregisters")
}

func TestADrillSaysWhichAlertItCannotProvoke(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "election_leader", Help: "in the way", ConstLabels: prometheus.Labels{
		"bucket": BucketName, "election": "ElectionWritesAfterTerm", "identity": "writer"}}))
	ctx, end := context.WithTimeout(context.Background(), 30*time.Second)
	defer end()
	err := Drill{Alerts: []string{"ElectionWritesAfterTerm"}, Metrics: registry, Pace: time.Second}.Run(ctx)
	g.Expect(err).To(MatchError(HavePrefix("ElectionWritesAfterTerm cannot be provoked: ")))
}
