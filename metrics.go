package election

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metrics counts what happens in one election and shows how it stands at the instant of a scrape. Everything is
// registered as one collector, from the start of a run to its end. A nil *metrics counts nothing.
type metrics struct {
	registerer prometheus.Registerer
	name, key  string

	campaigns        *prometheus.CounterVec
	transitions      *prometheus.CounterVec
	renewalFailures  *prometheus.CounterVec
	renewalDurations prometheus.Histogram
	gauges           []prometheus.Collector
	twice            []doubled // what has a name of old as well
}

// newMetrics returns the metrics of e, nil if it has no registerer.
func newMetrics(e *Election) *metrics {
	if e.opts.registerer == nil {
		return nil
	}
	labels := prometheus.Labels{"election": e.key, "identity": e.name}
	counter := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, by)
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	source := func(name string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "election_wake_up_source", Help: "How this candidate hears of changes: 1 for the source in use.",
			ConstLabels: prometheus.Labels{"election": e.key, "identity": e.name, "source": name},
		}, func() float64 {
			if a := e.ear.Load(); a != nil && a.hub.inUse() == name {
				return 1
			}
			return 0
		})
	}
	m := &metrics{
		registerer: e.opts.registerer, name: e.name, key: e.key,
		campaigns:       counter("election_campaigns_total", "Campaigns made, by the state in which they were made.", "state"),
		transitions:     counter("election_transitions_total", "Changes of state, by the new state and the reason.", "to", "reason"),
		renewalFailures: counter("election_renewal_failures_total", "Tries to renew the lease that failed, by the reason.", "reason"),
		renewalDurations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "election_renewal_duration_seconds", Help: "Round trips of successful renewals.", ConstLabels: labels,
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		}),
		gauges: []prometheus.Collector{
			source(sourceRepublish), source(sourceWatch), source(sourceNone),
			gauge("election_lease_remaining_seconds", "What is left of the lease on the key, 0 unless it is held.", func() float64 {
				if t := e.tenure.Load(); t != nil {
					return t.remaining().Seconds()
				}
				return 0
			}),
			gauge("election_term_start_timestamp_seconds", "When the key was won by the present leader or leader-elect, as Unix time, 0 unless it is this candidate.", func() float64 {
				if t := e.tenure.Load(); t != nil && t.holds() {
					return float64(t.term.Since.UnixMilli()) / 1000
				}
				return 0
			}),
		},
	}
	leader := gauge("election_leader", "Whether this candidate leads, 1 or 0.", func() float64 {
		if e.IsLeader() {
			return 1
		}
		return 0
	})
	interval := gauge("election_interval_seconds", "Time from the last campaign or renewal to the next.", func() float64 {
		return time.Duration(e.wait.Load()).Seconds()
	})
	if e.opts.namespace == nil {
		m.gauges = append(m.gauges, leader, interval)
		return m
	}
	double := func(c prometheus.Collector, name, now string, by ...string) doubled {
		name = *e.opts.namespace + "_" + name
		return doubled{Collector: c, desc: prometheus.NewDesc(name, "Old name of "+now+".", by, labels)}
	}
	m.twice = []doubled{
		double(m.campaigns, "election_campaigns", "election_campaigns_total", "state"),
		double(leader, "election_leader", "election_leader"),
		double(interval, "election_interval_seconds", "election_interval_seconds"),
	}
	return m
}

// register makes the metrics visible, or says why not.
func (m *metrics) register() error {
	if m == nil {
		return nil
	}
	if err := m.registerer.Register(m); err != nil {
		return invalid("WithRegisterer: the metrics of candidate %q in election %q cannot be registered; give every candidate of one process a name of its own, or a registerer: %w", m.name, m.key, err)
	}
	return nil
}

// unregister leaves no series behind.
func (m *metrics) unregister() {
	if m != nil {
		m.registerer.Unregister(m)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	all := append([]prometheus.Collector{m.transitions, m.renewalFailures, m.renewalDurations}, m.gauges...)
	if m.twice == nil {
		return append(all, m.campaigns)
	}
	for _, d := range m.twice {
		all = append(all, d)
	}
	return all
}

// doubled shows a collector's metrics a second time, by another name. Each is read once for both names, so that they never
// differ.
type doubled struct {
	prometheus.Collector
	desc *prometheus.Desc // by the other name
}

// Describe makes doubled a collector.
func (d doubled) Describe(ch chan<- *prometheus.Desc) {
	d.Collector.Describe(ch)
	ch <- d.desc
}

// Collect makes doubled a collector.
func (d doubled) Collect(ch chan<- prometheus.Metric) {
	own := make(chan prometheus.Metric)
	go func() {
		defer close(own)
		d.Collector.Collect(own)
	}()
	for m := range own {
		var value dto.Metric
		if err := m.Write(&value); err != nil {
			ch <- prometheus.NewInvalidMetric(m.Desc(), err)
			continue
		}
		ch <- reading{m.Desc(), &value}
		ch <- reading{d.desc, &value}
	}
}

// reading is a metric that was read already.
type reading struct {
	desc  *prometheus.Desc
	value *dto.Metric
}

// Desc makes reading a metric.
func (r reading) Desc() *prometheus.Desc { return r.desc }

// Write makes reading a metric.
func (r reading) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge = r.value.Label, r.value.Counter, r.value.Gauge
	return nil
}

// Describe makes metrics a collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect makes metrics a collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

// campaigned counts a campaign made in state s.
func (m *metrics) campaigned(s State) {
	if m != nil {
		m.campaigns.WithLabelValues(s.String()).Inc()
	}
}

// moved counts a change of state.
func (m *metrics) moved(to State, why reason) {
	if m != nil {
		m.transitions.WithLabelValues(to.String(), string(why)).Inc()
	}
}

// renewed counts a renewal that took so long.
func (m *metrics) renewed(took time.Duration) {
	if m != nil {
		m.renewalDurations.Observe(took.Seconds())
	}
}

// renewalFailed counts a try to renew that failed.
func (m *metrics) renewalFailed(why string) {
	if m != nil {
		m.renewalFailures.WithLabelValues(why).Inc()
	}
}
