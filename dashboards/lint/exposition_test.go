package lint

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// exposition is what candidates show: the labels of each series name, and the values that each label has.
type exposition map[string]map[string][]string

// exposed returns what candidates of a real election show, with the namespace as a prefix, once one of them leads and
// has opened a stream for writes that are fenced.
func exposed(t *testing.T, namespace string) exposition {
	t.Helper()
	x, _ := gathered(t, namespace)
	return x
}

// gathered returns the same, and the text that Prometheus reads.
func gathered(t *testing.T, namespace string) (exposition, []byte) {
	t.Helper()
	x, text := exposition{}, &bytes.Buffer{}
	natstest.Bubble(t, func(t *testing.T) {
		g, s, registry := NewWithT(t), natstest.Start(t), prometheus.NewPedanticRegistry()
		var candidates []*election.Election
		for _, name := range []string{"a", "b", "unnotified"} {
			bucket := s.Bucket(t, s.Connect(t), 10*time.Second, natstest.WithMarkers)
			if name == "unnotified" {
				bucket = fleettest.Unwatchable{KeyValue: bucket}
			}
			e, err := election.NewElection(name, "jobs", bucket, election.WithRegisterer(registry), election.WithMetricsNamespace(namespace))
			g.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(context.Background()) }()
			t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			candidates = append(candidates, e)
		}
		time.Sleep(time.Minute)
		for _, e := range candidates {
			if term, leads := e.Term(); leads {
				write(t, s, term, registry, namespace)
			}
		}
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			x.add(f)
			_, err := expfmt.MetricFamilyToText(text, f)
			g.Expect(err).NotTo(HaveOccurred())
		}
	})
	return x, text.Bytes()
}

// write has a leader write to a stream of its own, and the write counted.
func write(t *testing.T, s *natstest.Server, term election.Term, registerer prometheus.Registerer, namespace string) {
	g := NewWithT(t)
	js, err := jetstream.New(s.Connect(t))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	orders, err := fence.OpenStream(t.Context(), js, "ORDERS", "orders.epoch", term, fence.WithRegisterer(registerer), fence.WithMetricsNamespace(namespace))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = orders.Publish(t.Context(), "orders.done", nil)
	g.Expect(err).NotTo(HaveOccurred())
}

// add adds a family, under the names that its series have in Prometheus.
func (x exposition) add(f *dto.MetricFamily) {
	for _, m := range f.GetMetric() {
		names := []string{f.GetName()}
		if h := m.GetHistogram(); h != nil {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			if h.Schema != nil {
				names = append(names, f.GetName()) // of the native histogram
			}
			x.label(names[0], "le", "+Inf")
		}
		for _, name := range names {
			x.label(name, "job", "")
			x.label(name, "instance", "")
			for _, l := range m.GetLabel() {
				x.label(name, l.GetName(), l.GetValue())
			}
		}
	}
}

func (x exposition) label(name, label, value string) {
	if x[name] == nil {
		x[name] = map[string][]string{}
	}
	if !slices.Contains(x[name][label], value) {
		x[name][label] = append(x[name][label], value)
	}
}
