package election

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/version"
)

// metrics counts what happens in one election and shows its state at the instant of a scrape. Everything is registered as one collector,
// from the start of a run to its end. A nil *metrics counts nothing.
type metrics struct {
	config       *config
	moment       func(now time.Time) moment // returns the state at an instant
	registerer   prometheus.Registerer
	namespace    string
	endBuildInfo func() // ends the use of the build info, which candidates share; set while registered

	campaigns        *prometheus.CounterVec
	transitions      *prometheus.CounterVec
	renewalFailures  *prometheus.CounterVec
	renewalDurations prometheus.Histogram
	counters         []prometheus.Collector // all of them
	gauges           []gauge
	source           *prometheus.Desc // of the source of notifications, which is a label
}

// gauge is one series that is computed at each scrape.
type gauge struct {
	desc  *prometheus.Desc
	value func(now moment) float64
}

// newMetrics returns the metrics of a candidate; nil if it has no registerer.
func newMetrics(c *config, moment func(now time.Time) moment) *metrics {
	if c.opts.Registerer == nil {
		return nil
	}
	m := &metrics{config: c, moment: moment, registerer: c.opts.Registerer, namespace: c.opts.Namespace}
	m.campaigns = m.counter("election_campaigns_total", "Campaigns made, by the state in which they were made.", "state")
	m.transitions = m.counter("election_transitions_total", "Changes of state, by the new state and the reason.", "to", "reason")
	m.renewalFailures = m.counter("election_renewal_failures_total", "Tries to renew the lease that failed, by the reason.", "reason")
	m.renewalDurations = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: m.name("election_renewal_duration_seconds"), Help: "Round trips of successful renewals.", ConstLabels: m.config.labels(),
		Buckets:                     []float64{.001, .01, .1, 1}, // each is a series; the native histogram is finer, and none
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	m.source = prometheus.NewDesc(m.name("election_notification_source"),
		"How this candidate is notified of changes: 1, with the source in use as a label.", []string{"source"}, m.config.labels())
	campaigns := collectors.Renamed{Collector: m.campaigns}
	if name, ok := m.choria("election_campaigns"); ok {
		campaigns.Names = append(campaigns.Names, prometheus.NewDesc(name, "Choria's name of election_campaigns_total.", []string{"state"}, m.config.labels()))
	}
	m.counters = []prometheus.Collector{campaigns, m.transitions, m.renewalFailures, m.renewalDurations}
	m.addGauges()
	m.countFromZero()
	return m
}

// name returns the name of a metric in the namespace.
func (m *metrics) name(name string) string { return prometheus.BuildFQName(m.namespace, "", name) }

// choria returns the name that Choria gives a metric, and whether a metric of that name is to be added.
func (m *metrics) choria(name string) (string, bool) {
	prefix := m.config.opts.Choria
	if prefix == nil {
		return "", false
	}
	return *prefix + "_" + name, *prefix != m.namespace || name == "election_campaigns"
}

func (m *metrics) counter(name, help string, by ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name(name), Help: help, ConstLabels: m.config.labels()}, by)
}

// addGauges adds the gauges.
func (m *metrics) addGauges() {
	add := func(name, help string, value func(moment) float64) {
		m.gauges = append(m.gauges, gauge{prometheus.NewDesc(m.name(name), help, nil, m.config.labels()), value})
	}
	addChorias := func(name, help string, value func(moment) float64) {
		add(name, help, value)
		if old, ok := m.choria(name); ok {
			m.gauges = append(m.gauges, gauge{prometheus.NewDesc(old, "Choria's name of "+name+".", nil, m.config.labels()), value})
		}
	}
	addChorias("election_leader", "Whether this candidate leads, 1 or 0.", func(now moment) float64 {
		return collectors.OneIf(now.state == LeaderState)
	})
	addChorias("election_interval_seconds", "Time from the last campaign or renewal to the next.", func(now moment) float64 {
		return now.wait.Seconds()
	})
	add("election_state", "The state of this candidate: 1 candidate, 2 leader, 3 leader-elect.", func(now moment) float64 {
		return float64(now.state)
	})
	add("election_paused", "Whether the election or this candidate is paused, 1 or 0.", func(now moment) float64 {
		return collectors.OneIf(now.paused)
	})
	add("election_healthy", "Whether this candidate passes its health check and makes progress, 1 or 0.", func(now moment) float64 {
		return collectors.OneIf(now.healthy)
	})
	if !m.config.opts.NoStandbys {
		add("election_standby", "Whether this candidate would take over if the leader went, 1 or 0.", func(now moment) float64 {
			return collectors.OneIf(now.standby)
		})
		add("election_next", "Whether the leader names this candidate as the one that takes over, 1 or 0.", func(now moment) float64 {
			return collectors.OneIf(now.next)
		})
	}
	add("election_lease_seconds", "How long a lease lasts from a renewal, 0 until the bucket was reached.", func(now moment) float64 {
		return now.leaseTime.Seconds()
	})
	add("election_lease_remaining_seconds", "What is left of the lease on the key, 0 unless it is held.", func(now moment) float64 {
		return now.left.Seconds()
	})
	add("election_lease_expiry_timestamp_seconds", "When the lease on the key ends unless it is renewed, as Unix time, 0 unless it is held.", func(now moment) float64 {
		return unixTime(now.expires)
	})
	add("election_term", "Number of the term for which the key is held, 0 unless it is.", func(now moment) float64 {
		return float64(now.term.Number)
	})
	add("election_term_start_timestamp_seconds", "When the key was won by the present leader or leader-elect, as Unix time, 0 unless it is this candidate.", func(now moment) float64 {
		return unixTime(now.term.Since)
	})
	add("election_leads_since_timestamp_seconds", "Since when leadership counts, as Unix time, 0 unless this candidate leads.", func(now moment) float64 {
		return unixTime(now.leads)
	})
}

// unixTime returns t in seconds; 0 for the zero time.
func unixTime(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// countFromZero shows the series of what alerts and most candidates count: a series that begins with its first event does not show that
// event as an increase. Reasons that are rare begin when they occur, so that a candidate has few series.
func (m *metrics) countFromZero() {
	for _, s := range []State{CandidateState, LeaderElectState, LeaderState} {
		m.campaigns.WithLabelValues(s.String())
	}
	m.transitions.WithLabelValues(LeaderState.String(), string(ReasonStoodDown))
	m.transitions.WithLabelValues(CandidateState.String(), string(ReasonDeadline))
	m.renewalFailures.WithLabelValues(kv.FailedTimeout)
	m.renewalFailures.WithLabelValues(kv.FailedDisconnected)
}

// register registers the metrics, or says why it cannot.
func (m *metrics) register() error {
	if m == nil {
		return nil
	}
	end, err := collectors.Share(m.registerer, m.buildInfo())
	if err != nil {
		return validate.Errorf("WithRegisterer: %s cannot be registered; give the elections a registerer of their own, or a namespace: %w", m.name("election_build_info"), err)
	}
	if err := m.registerer.Register(m); err != nil {
		end()
		return validate.Errorf("WithRegisterer: the metrics of candidate %q in election %q cannot be registered; give every candidate of one process a name of its own, or a registerer: %w", m.config.name, m.config.key, err)
	}
	m.endBuildInfo = end
	return nil
}

// buildInfo returns the metric that tells which version of this module runs. It is one series for all candidates of a registerer.
func (m *metrics) buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: m.name("election_build_info"), Help: "1, with the version of the election package and that of Go as labels.",
		ConstLabels: prometheus.Labels{"version": version.String(), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// unregister leaves no series behind.
func (m *metrics) unregister() {
	if m != nil {
		m.registerer.Unregister(m)
		m.endBuildInfo()
	}
}

// Describe makes metrics a collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters {
		c.Describe(ch)
	}
	for _, g := range m.gauges {
		ch <- g.desc
	}
	ch <- m.source
}

// Collect makes metrics a collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters {
		c.Collect(ch)
	}
	now := m.moment(time.Now())
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(now))
	}
	if now.source != "" {
		ch <- prometheus.MustNewConstMetric(m.source, prometheus.GaugeValue, 1, now.source)
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
