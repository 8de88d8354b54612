package session

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/session"
)

// maxKeyMetrics is of how many keys the metrics of a session show the leader.
const maxKeyMetrics = 1000

// metrics shows the state of a session at the instant of a scrape. A nil *metrics shows nothing.
type metrics struct {
	s                               *Session
	open, keys, remaining, requests *prometheus.Desc
	shown                           atomic.Int32 // keys whose leader is shown
}

// register registers the metrics of a session; nil if the session has no registerer.
func register(s *Session) (*metrics, error) {
	o := s.opts
	if o.Registerer == nil {
		return nil, nil
	}
	labels := prometheus.Labels{"bucket": s.cfg.Bucket, "identity": s.identity()}
	desc := func(name, help string, by ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, "", name), help, by, labels)
	}
	m := &metrics{
		s:         s,
		open:      desc("election_session_open", "Whether the session can lead keys, 1 or 0."),
		keys:      desc("election_session_keys", "Elections of the session, by the state of its candidates.", "state"),
		remaining: desc("election_session_lease_remaining_seconds", "What is left of the lease of all keys, 0 if the session has none."),
		requests:  desc("election_session_requests_total", "Requests that the session has made."),
	}
	if err := o.Registerer.Register(m); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *metrics) unregister() {
	if m != nil {
		m.s.opts.Registerer.Unregister(m)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.open, m.keys, m.remaining, m.requests} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st, states := m.s.status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.open, collectors.OneIf(st.Open))
	gauge(m.remaining, st.LeaseRemaining.Seconds())
	ch <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(st.Requests))
	for _, state := range []core.State{core.Follower, core.LeaderElect, core.Leader} {
		gauge(m.keys, float64(states[state]), election.State(state).String())
	}
}

// show shows whether a process leads a key, as the metrics of an election of its own do, unless there is no registerer, or as many keys are shown as may be.
// The mutex is not held, for which a scrape may wait.
func (m *metrics) show(c *claim) error {
	if m == nil {
		return nil
	}
	if m.shown.Add(1) > maxKeyMetrics {
		m.shown.Add(-1)
		return nil
	}
	o := m.s.opts
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prometheus.BuildFQName(o.Namespace, "", "election_leader"), Help: "Whether this candidate leads, 1 or 0.",
		ConstLabels: prometheus.Labels{"bucket": m.s.cfg.Bucket, "election": c.key, "identity": m.s.identity()},
	}, func() float64 {
		c.Lock()
		defer c.Unlock()
		return collectors.OneIf(stateOf(c.Claim, time.Now()) == core.Leader)
	})
	if err := o.Registerer.Register(g); err != nil {
		m.shown.Add(-1)
		return err
	}
	c.hide = func() {
		o.Registerer.Unregister(g)
		m.shown.Add(-1)
	}
	return nil
}

// stateOf returns the state of a claim.
func stateOf(c *session.Claim, now time.Time) core.State {
	if t := c.Term(); t != nil && t.Lease.Left(now, lease.SinceBoot) > 0 {
		return t.Lease.State
	}
	return core.Follower
}
