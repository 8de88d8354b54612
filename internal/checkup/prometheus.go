package checkup

import (
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/natscampaign/election/internal/look"
)

// prometheus writes the assessment as the text format of Prometheus has it.
func (a *Result) prometheus(w io.Writer) error {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "election_check", Name: name, Help: help}, append([]string{"bucket"}, labels...))
		registry.MustRegister(g)
		return g
	}
	status := gauge("status", "0 if all is well, 1 for a warning, 2 if critical, 3 if nothing could be found out.")
	status.WithLabelValues(a.Bucket).Set(float64(a.Status))
	if a.Status != GradeUnknown {
		a.measure(gauge)
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

// measure sets all that is known if something could be found out.
func (a *Result) measure(gauge func(name, help string, labels ...string) *prometheus.GaugeVec) {
	leader := gauge("leader", "1 for the holder of the key whose leadership counts, as far as is known, 0 for one whose does not yet.", "election", "identity", "host")
	term := gauge("term", "Number of the leader's term; 0 if it has none or it is not known.", "election")
	left := gauge("lease_remaining_seconds", "Until the key expires unless it is renewed, by the server's clock; 0 unless the key is held.", "election")
	age := gauge("renewal_age_seconds", "Since the last renewal, by the server's clock.", "election")
	finding := gauge("finding", "1 for each thing that is wrong.", "election", "code", "severity")
	for _, key := range a.Named { // those that nobody leads too
		left.WithLabelValues(a.Bucket, key).Set(0)
		term.WithLabelValues(a.Bucket, key).Set(0)
	}
	for _, s := range a.Elections {
		counts := 1.0
		if s.State == look.StateLeaderElect {
			counts = 0
		}
		leader.WithLabelValues(a.Bucket, s.Key, s.Name, s.Host).Set(counts)
		term.WithLabelValues(a.Bucket, s.Key).Set(float64(s.Term))
		left.WithLabelValues(a.Bucket, s.Key).Set(max(s.Left.Seconds(), 0))
		age.WithLabelValues(a.Bucket, s.Key).Set(s.Age.Seconds())
	}
	for _, r := range a.Findings {
		if r.Severity > 0 {
			finding.WithLabelValues(a.Bucket, r.Key, r.Code, r.Severity.String()).Set(1)
		}
	}
	if a.ClockAheadS != nil {
		gauge("clock_ahead_seconds", "By how much this host's clock is ahead of the server's.").WithLabelValues(a.Bucket).Set(*a.ClockAheadS)
	}
}
