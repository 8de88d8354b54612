package election

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/validate"
)

// metrics counts what happens in one election and shows its state at the instant of a scrape. Everything is registered as one collector,
// from the start of a run to its end. A nil *metrics counts nothing.
type metrics struct {
	election   *Election
	registerer prometheus.Registerer

	campaigns        *prometheus.CounterVec
	transitions      *prometheus.CounterVec
	renewalFailures  *prometheus.CounterVec
	renewalDurations prometheus.Histogram
	gauges           []gauge
	old              []*prometheus.Desc // of the campaigns, by the names that other elections use
}

// gauge is one series that is computed at each scrape.
type gauge struct {
	desc  *prometheus.Desc
	value func(now moment) float64
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
	m := &metrics{
		election: e, registerer: e.opts.registerer,
		campaigns:       counter("election_campaigns_total", "Campaigns made, by the state in which they were made.", "state"),
		transitions:     counter("election_transitions_total", "Changes of state, by the new state and the reason.", "to", "reason"),
		renewalFailures: counter("election_renewal_failures_total", "Tries to renew the lease that failed, by the reason.", "reason"),
		renewalDurations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "election_renewal_duration_seconds", Help: "Round trips of successful renewals.", ConstLabels: labels,
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		}),
		gauges: gauges(e),
	}
	for _, ns := range e.opts.namespaces {
		m.old = append(m.old, prometheus.NewDesc(ns+"_election_campaigns", "Old name of election_campaigns_total.", []string{"state"}, labels))
	}
	m.countFromZero()
	return m
}

// gauges returns the gauges of e.
func gauges(e *Election) (all []gauge) {
	add := func(name, help string, value func(moment) float64, label ...string) {
		labels := prometheus.Labels{"election": e.key, "identity": e.name}
		if len(label) > 0 {
			labels[label[0]] = label[1]
		}
		all = append(all, gauge{prometheus.NewDesc(name, help, nil, labels), value})
		if name == "election_leader" || name == "election_interval_seconds" {
			for _, ns := range e.opts.namespaces {
				all = append(all, gauge{prometheus.NewDesc(ns+"_"+name, "Old name of "+name+".", nil, labels), value})
			}
		}
	}
	add("election_leader", "Whether this candidate leads, 1 or 0.", func(now moment) float64 {
		return oneIf(now.state == LeaderState)
	})
	for _, s := range []State{CandidateState, LeaderElectState, LeaderState} {
		add("election_state", "The state of this candidate: 1 for the state it is in.", func(now moment) float64 {
			return oneIf(now.state == s)
		}, "state", s.String())
	}
	add("election_interval_seconds", "Time from the last campaign or renewal to the next.", func(now moment) float64 {
		return now.wait.Seconds()
	})
	for _, source := range []string{notify.Republish, notify.Watch, notify.None} {
		add("election_notification_source", "How this candidate is notified of changes: 1 for the source in use.", func(now moment) float64 {
			return oneIf(now.source == source)
		}, "source", source)
	}
	add("election_lease_seconds", "How long a lease lasts from a renewal, 0 until the bucket was reached.", func(now moment) float64 {
		return now.leaseTime.Seconds()
	})
	add("election_lease_remaining_seconds", "What is left of the lease on the key, 0 unless it is held.", func(now moment) float64 {
		return now.left.Seconds()
	})
	add("election_term", "Number of the term for which the key is held, 0 unless it is.", func(now moment) float64 {
		return float64(now.term.Number)
	})
	add("election_term_start_timestamp_seconds", "When the key was won by the present leader or leader-elect, as Unix time, 0 unless it is this candidate.", func(now moment) float64 {
		if now.term.Since.IsZero() {
			return 0
		}
		return float64(now.term.Since.UnixMilli()) / 1000
	})
	return all
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// countFromZero shows every series that is known to be possible from the start: a series that begins with its first event would not show as
// a change.
func (m *metrics) countFromZero() {
	for _, s := range []State{CandidateState, LeaderElectState, LeaderState} {
		m.campaigns.WithLabelValues(s.String())
	}
	for to, reasons := range reasonsTo {
		for _, r := range reasons {
			m.transitions.WithLabelValues(to.String(), string(r))
		}
	}
	for _, why := range kv.Failures {
		m.renewalFailures.WithLabelValues(why)
	}
}

// register registers the metrics, or says why it cannot.
func (m *metrics) register() error {
	if m == nil {
		return nil
	}
	if err := m.registerer.Register(m); err != nil {
		return validate.Errorf("WithRegisterer: the metrics of candidate %q in election %q cannot be registered; give every candidate of one process a name of its own, or a registerer: %w", m.election.name, m.election.key, err)
	}
	return nil
}

// unregister leaves no series behind.
func (m *metrics) unregister() {
	if m != nil {
		m.registerer.Unregister(m)
	}
}

func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{renamed{m.campaigns, m.old}, m.transitions, m.renewalFailures, m.renewalDurations}
}

// renamed shows a collector's metrics again by other names. Each metric is read once for all names, so that they never differ.
type renamed struct {
	prometheus.Collector
	descs []*prometheus.Desc // by the other names
}

// Describe makes renamed a collector.
func (r renamed) Describe(ch chan<- *prometheus.Desc) {
	r.Collector.Describe(ch)
	for _, d := range r.descs {
		ch <- d
	}
}

// Collect makes renamed a collector.
func (r renamed) Collect(ch chan<- prometheus.Metric) {
	own := make(chan prometheus.Metric)
	go func() {
		defer close(own)
		r.Collector.Collect(own)
	}()
	for m := range own {
		var value dto.Metric
		if err := m.Write(&value); err != nil {
			ch <- prometheus.NewInvalidMetric(m.Desc(), err)
			continue
		}
		for _, d := range append([]*prometheus.Desc{m.Desc()}, r.descs...) {
			ch <- reading{d, &value}
		}
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
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect makes metrics a collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	now := m.election.now.Load().at(time.Now())
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(now))
	}
}

// campaigned counts a campaign made in state s.
func (m *metrics) campaigned(s State) {
	if m != nil {
		m.campaigns.WithLabelValues(s.String()).Inc()
	}
}

// stateChanged counts a change of state.
func (m *metrics) stateChanged(to State, why Reason) {
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
