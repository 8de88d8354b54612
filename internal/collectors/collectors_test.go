package collectors

import (
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "shared", Help: "Shared."})
}

func TestSharedCollectorStaysUntilItsLastUserEnds(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewPedanticRegistry()
	for name, r := range map[string]prometheus.Registerer{
		"registry": registry, "wrapped": prometheus.WrapRegistererWithPrefix("x_", registry),
	} {
		first, err := Share(r, newGauge())
		g.Expect(err).NotTo(HaveOccurred(), name)
		second, err := Share(r, newGauge())
		g.Expect(err).NotTo(HaveOccurred(), name)
		first()
		g.Expect(testutil.GatherAndCount(registry)).To(Equal(1), name)
		second()
		g.Expect(testutil.GatherAndCount(registry)).To(BeZero(), name)
	}
}

func TestManyUsersAtOnceShareOneCollectorAndLeaveNone(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewPedanticRegistry()
	var users sync.WaitGroup
	for range 50 {
		users.Go(func() {
			end, err := Share(registry, newGauge())
			if err != nil {
				t.Error(err)
				return
			}
			end()
		})
	}
	users.Wait()
	g.Expect(testutil.GatherAndCount(registry)).To(BeZero())
}

func TestCollectorOfAnotherOwnerIsNotShared(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewPedanticRegistry()
	registry.MustRegister(newGauge())
	_, err := Share(registry, newGauge())
	g.Expect(err).To(MatchError(ContainSubstring("another collector")))
}

func TestRenamedCounterHasOneValueByAllNames(t *testing.T) {
	g, registry := NewWithT(t), prometheus.NewPedanticRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "new_total", Help: "New."}, []string{"by"})
	c.WithLabelValues("a").Add(3)
	registry.MustRegister(Renamed{c, []*prometheus.Desc{prometheus.NewDesc("old", "Old.", []string{"by"}, nil)}})
	g.Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP new_total New.
# TYPE new_total counter
new_total{by="a"} 3
# HELP old Old.
# TYPE old counter
old{by="a"} 3
`))).To(Succeed())
}
