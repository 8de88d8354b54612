package checkup

import (
	"io"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
)

// newGauge registers a gauge with the label bucket and the given labels.
type newGauge func(name, help string, labels ...string) *prometheus.GaugeVec

// prometheus writes the result in the text format of Prometheus.
func (r *Result) prometheus(w io.Writer) error {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "election_check", Name: name, Help: help}, append([]string{"bucket"}, labels...))
		registry.MustRegister(g)
		return g
	}
	gauge("status", "0 if OK, 1 for a warning, 2 if critical, 3 if the check failed.").WithLabelValues(r.Bucket).Set(float64(r.Status))
	if r.Status != StatusUnknown {
		r.setGauges(gauge)
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// setGauges sets the gauges about elections, findings and the clock.
func (r *Result) setGauges(gauge newGauge) {
	leader := gauge("leader", "1 for a holder of the key whose leadership counts or may count, 0 for a leader-elect.", "election", "identity", "host")
	term := gauge("term", "Number of the leader's term; 0 if there is none or it is unknown.", "election")
	left := gauge("lease_remaining_seconds", "Time until the key expires unless it is renewed, by the server's clock; 0 if the key has no holder.", "election")
	age := gauge("renewal_age_seconds", "Time since the last renewal, by the server's clock.", "election")
	finding := gauge("finding", "1 for each warning and critical finding.", "election", "code", "severity")
	standbys := gauge("standbys", "Number of candidates that answered and would take over; there is no such series where that is not known, or none is needed.", "election")
	for _, key := range slices.Concat(r.options.Keys, r.options.Expected) { // elections without a leader need values too
		left.WithLabelValues(r.Bucket, key).Set(0)
		term.WithLabelValues(r.Bucket, key).Set(0)
	}
	for _, h := range r.Elections {
		counts := 1.0
		if h.State == look.StateLeaderElect {
			counts = 0
		}
		leader.WithLabelValues(r.Bucket, h.Key, h.Name, h.Host).Set(counts)
		term.WithLabelValues(r.Bucket, h.Key).Set(float64(h.Term))
		left.WithLabelValues(r.Bucket, h.Key).Set(max(h.TimeLeft.Seconds(), 0))
		if h.Standbys != nil {
			standbys.WithLabelValues(r.Bucket, h.Key).Set(float64(*h.Standbys))
		}
		age.WithLabelValues(r.Bucket, h.Key).Set(h.RenewalAge.Seconds())
	}
	for _, f := range r.Findings {
		if f.Severity > admin.SeverityInfo {
			finding.WithLabelValues(r.Bucket, f.Key, f.Code, f.Severity.String()).Set(1)
		}
	}
	if r.ClockAheadS != nil {
		gauge("clock_ahead_seconds", "Time by which the clock of the checking host is ahead of the server's clock.").WithLabelValues(r.Bucket).Set(*r.ClockAheadS)
	}
}
